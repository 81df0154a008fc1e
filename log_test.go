package dlock_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend/memory"
)

// A lineLog is what a client has logged in a synctest bubble.
type lineLog struct{ bytes.Buffer }

func (l *lineLog) logger() *slog.Logger { return slog.New(slog.NewJSONHandler(l, nil)) }

// lines returns those that say msg, and of each what it says by attribute.
func (l *lineLog) lines(t *testing.T, msg string) (all []map[string]any) {
	t.Helper()
	synctest.Wait()
	for line := range strings.Lines(l.String()) {
		var attrs map[string]any
		if err := json.Unmarshal([]byte(line), &attrs); err != nil {
			t.Fatal(err)
		}
		if attrs["msg"] == "dlock: "+msg {
			all = append(all, attrs)
		}
	}
	return all
}

// expect fails the test unless there is one line that says msg, with those attributes.
func (l *lineLog) expect(t *testing.T, msg string, want map[string]any) map[string]any {
	t.Helper()
	all := l.lines(t, msg)
	if len(all) != 1 {
		t.Fatalf("%d lines say %q: %s", len(all), msg, l)
	}
	for key, value := range want {
		if all[0][key] != value {
			t.Errorf("%s: %s is %v, want %v", msg, key, all[0][key], value)
		}
	}
	return all[0]
}

func TestLossIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lineLog
		s := memory.NewServer()
		b := memory.New(s)
		c := client(t, b, dlock.Options{TTL: 3 * time.Second, Logger: log.logger()})
		lease, err := c.RWMutex("x").RLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		b.Cut()
		<-lease.Done()
		b.Heal()
		log.expect(t, "lock lost", map[string]any{
			"level": "ERROR", "dlock.lock.name": "x", "dlock.mode": "shared", "dlock.token": float64(lease.Token()),
			"dlock.cause": "expired", "error.type": "lost",
		})
		failed := log.expect(t, "lock not renewed yet", map[string]any{"level": "WARN", "dlock.lock.name": "x", "error.type": "unavailable"})
		if failed["ttl"] != float64(3*time.Second) || failed["left"].(float64) <= 0 {
			t.Errorf("a failed renewal says %v", failed)
		}
	})
}

// A loss that the program has asked for is no error.
func TestMaxHoldIsLoggedAsWarning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lineLog
		c := client(t, memory.New(nil), dlock.Options{Logger: log.logger()})
		<-lock(t, c.Mutex("x", dlock.WithMaxHold(time.Minute))).Done()
		log.expect(t, "lock lost", map[string]any{"level": "WARN", "dlock.cause": "max_hold", "dlock.mode": "exclusive"})
	})
}

func TestUnconfirmedReleaseIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lineLog
		b := memory.New(nil)
		c := client(t, b, dlock.Options{Logger: log.logger()})
		lease := lock(t, c.Mutex("x"))
		b.Cut()
		is(t, lease.Unlock(t.Context()), dlock.ErrUnavailable)
		b.Heal()
		log.expect(t, "release not confirmed", map[string]any{"level": "WARN", "dlock.lock.name": "x", "error.type": "unavailable"})
	})
}

// Renewals that fail or come back late are logged, and for many locks in one line.
func TestLateRenewalsAreLogged(t *testing.T) {
	for msg, disturb := range map[string]func(*memory.Backend){
		"lock not renewed yet": func(b *memory.Backend) {
			b.Cut()
			time.Sleep(25 * time.Second)
			b.Heal()
		},
		"lock renewed late": func(b *memory.Backend) {
			b.Delay(6 * time.Second)
			time.Sleep(21 * time.Second)
			b.Delay(0)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			var log lineLog
			b := memory.New(nil)
			renewed := make(chan struct{}, 1000)
			hooks := dlock.Hooks{Renewed: func(dlock.RenewedEvent) { renewed <- struct{}{} }}
			c := client(t, b, dlock.Options{TTL: 30 * time.Second, Logger: log.logger(), Hooks: hooks})
			for _, name := range []string{"x", "y", "z"} {
				defer runtime.KeepAlive(lock(t, c.Mutex(name)))
			}
			for range 30 {
				<-renewed
			}
			synctest.Wait()
			if text := log.String(); text != "" {
				t.Errorf("when all was well it was logged: %s", text)
			}
			disturb(b)
			line := log.expect(t, msg, map[string]any{"level": "WARN", "dlock.mode": "exclusive"})
			if left := time.Duration(line["left"].(float64)); left <= 0 || left >= 15*time.Second {
				t.Errorf("%s with %v left", msg, left)
			}
			if strings.Count(log.String(), "\n") != 1 {
				t.Errorf("more was logged: %s", &log)
			}
		})
	}
}

// A logger that does not return delays no renewal.
func TestSlowLoggerDelaysNoRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(nil)
		c := client(t, b, dlock.Options{TTL: 30 * time.Second, Logger: slog.New(slowHandler{})})
		leases := []*dlock.Lease{lock(t, c.Mutex("x")), lock(t, c.Mutex("y"))}
		b.Cut()
		time.Sleep(15 * time.Second)
		b.Heal()
		time.Sleep(5 * time.Minute)
		for _, l := range leases {
			if err := l.Err(); err != nil {
				t.Error(err)
			}
		}
	})
}

// A slowHandler takes a minute for each line.
type slowHandler struct{}

func (slowHandler) Enabled(context.Context, slog.Level) bool { return true }
func (slowHandler) Handle(context.Context, slog.Record) error {
	time.Sleep(time.Minute)
	return nil
}
func (h slowHandler) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h slowHandler) WithGroup(string) slog.Handler      { return h }
