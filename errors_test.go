package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
)

var errShutdown = errors.New("the program is told to stop")

// How a context has ended is found in every error that it causes, whatever its owner
// gives as the cause.
func TestHowAContextEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ba, a, b := pair(t, dlock.Options{})
		m := a.Mutex("x")
		calls := map[string]func(context.Context) error{
			"before":  func(ctx context.Context) error { <-ctx.Done(); _, err := m.Lock(ctx); return err },
			"waiting": func(ctx context.Context) error { _, err := m.Lock(ctx); return err },
			"silent": func(ctx context.Context) error {
				ba.Cut()
				defer ba.Heal()
				_, err := a.Mutex("y").Lock(ctx)
				return err
			},
			"multi": func(ctx context.Context) error { _, err := a.Multi([]string{"w", "x"}).Lock(ctx); return err },
			"lead": func(ctx context.Context) error {
				return dlock.Lead(ctx, m, func(context.Context, *dlock.Lease) error { return nil })
			},
			"under": func(ctx context.Context) error {
				outer := lock(t, a.Mutex("z"))
				defer unlock(t, outer)
				under := outer.Context(ctx)
				inner, err := a.Mutex("z").Lock(under)
				is(t, err, nil)
				defer unlock(t, inner)
				_, err = a.Mutex("z").Lock(under)
				return err
			},
		}
		other := lock(t, b.Mutex("x"))
		for name, call := range calls {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(errShutdown) })
			if err := call(ctx); !errors.Is(err, context.Canceled) || !errors.Is(err, errShutdown) {
				t.Errorf("%s: %v", name, err)
			}
			ctx, end := context.WithTimeoutCause(t.Context(), time.Second, errShutdown)
			if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, errShutdown) {
				t.Errorf("%s: %v", name, err)
			}
			end()
		}
		unlock(t, other)
	})
}

// A server that does not answer has not ended the caller's context.
func TestNoAnswerIsNotTheCallersContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ba, a, _ := pair(t, dlock.Options{})
		ba.Cut()
		defer ba.Heal()
		_, err := a.Mutex("x").Lock(t.Context())
		is(t, err, dlock.ErrUnavailable)
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

// The text of an error is one line, and says a thing once.
func TestErrorsAreOneLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, a, _ := pair(t, dlock.Options{})
		errs := map[string]error{}
		_, errs["name"] = a.Mutex("").Lock(t.Context())
		_, errs["both"] = a.Mutex("", dlock.WithTTL(-1)).Lock(t.Context())
		_, errs["multi"] = a.Multi([]string{"", "x"}, dlock.WithTTL(-1)).Lock(t.Context())
		_, errs["long name"] = a.Mutex(strings.Repeat("x", 1<<20)).Lock(t.Context())
		_, errs["names"] = a.Multi([]string{strings.Repeat("x", 1000), strings.Repeat("x", 1000) + "y"}, dlock.WithTTL(-1)).Lock(t.Context())
		errs["config"] = dlock.Config{URL: dlock.NewSecret("nonsense"), Label: "\x00"}.Validate()
		lost := func(ctx context.Context, l *dlock.Lease) error {
			s.Evict("x")
			<-ctx.Done()
			return context.Cause(ctx)
		}
		errs["do"] = dlock.Do(t.Context(), a.Mutex("x"), lost)
		errs["do, more"] = dlock.Do(t.Context(), a.Mutex("x"), func(ctx context.Context, l *dlock.Lease) error {
			return errors.Join(lost(ctx, l), errShutdown)
		})
		lease := lock(t, a.Multi([]string{"w", "x"}))
		s.Evict("x")
		synctest.Wait()
		errs["multi lost"] = lease.Err()
		_, errs["unknown"] = dlock.Open(t.Context(), "nonsense://", nil)
		unlocked := lock(t, a.RWMutex("y"))
		unlock(t, unlocked)
		errs["downgrade"] = unlocked.Downgrade(t.Context())
		for what, err := range errs {
			text := err.Error()
			if strings.Contains(text, "\n") || strings.Count(text, "dlock:") > 1 {
				t.Errorf("%s: %q", what, text)
			}
			if len(text) > 1500 {
				t.Errorf("%s: %d bytes", what, len(text))
			}
			if strings.Count(text, `"y"`) > 1 {
				t.Errorf("%s names the lock twice: %q", what, text)
			}
			for _, kind := range []error{dlock.ErrInvalidName, dlock.ErrLost, dlock.ErrInvalidConfig} {
				if n := strings.Count(text, backend.OneLine(kind)); n > 1 && what != "do, more" && what != "config" {
					t.Errorf("%s says %d times: %q", what, n, text)
				}
			}
		}
		is(t, errs["do, more"], dlock.ErrLost, errShutdown)
	})
}

// An error says what has happened, not only its kind.
func TestErrorsSayWhy(t *testing.T) {
	s, _, a, _ := pair(t, dlock.Options{})
	multi := lock(t, a.Multi([]string{"x", "y"}))
	err := multi.Downgrade(t.Context())
	is(t, err, dlock.ErrUnsupported)
	if text := err.Error(); strings.Contains(text, "backend") || !strings.Contains(text, "several names") {
		t.Errorf("the downgrade of a multi-lock: %s", text)
	}
	unlock(t, multi)
	lease := lock(t, a.Mutex("x"))
	s.Evict("x")
	<-lease.Done()
	is(t, lease.Err(), dlock.ErrLost)
	if text := lease.Err().Error(); !strings.Contains(text, "server") {
		t.Errorf("a lock that the server has forgotten: %s", text)
	}
}

// What f returns is not lost with its term.
func TestLeadReportsWhatFReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.NewServer()
		var log strings.Builder
		a := client(t, memory.New(s), dlock.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		ctx, cancel := context.WithCancel(t.Context())
		terms := 0
		err := dlock.Lead(ctx, a.Mutex("x"), func(ctx context.Context, l *dlock.Lease) error {
			if terms++; terms == 1 {
				s.Evict("x")
				<-ctx.Done()
				return fmt.Errorf("term %d was cut short", terms)
			}
			cancel()
			<-ctx.Done()
			return errShutdown
		})
		is(t, err, context.Canceled, errShutdown)
		synctest.Wait()
		if !strings.Contains(log.String(), "term 1 was cut short") {
			t.Errorf("logged: %s", log.String())
		}
	})
}

// An error that f joins with the end of its context is not taken for that end alone.
func TestLeadReportsWhatIsJoinedWithTheEnd(t *testing.T) {
	_, _, a, _ := pair(t, dlock.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	err := dlock.Lead(ctx, a.Mutex("x"), func(ctx context.Context, _ *dlock.Lease) error {
		cancel()
		return errors.Join(ctx.Err(), errShutdown)
	})
	is(t, err, context.Canceled, errShutdown)

	ctx, cancel = context.WithCancel(t.Context())
	err = dlock.Lead(ctx, a.Mutex("x"), func(ctx context.Context, _ *dlock.Lease) error {
		cancel()
		return ctx.Err()
	})
	if err != context.Canceled {
		t.Errorf("f has said no more than its context: %v", err)
	}
}

func TestLeadPausesBetweenShortTerms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, a, _ := pair(t, dlock.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		terms := 0
		err := dlock.Lead(ctx, a.Mutex("x"), func(context.Context, *dlock.Lease) error { terms++; return nil })
		is(t, err, context.DeadlineExceeded)
		if terms > 200 {
			t.Errorf("%d terms in a minute", terms)
		}
	})
}

// The wait for a term is no part of it.
func TestLeadPausesAfterAShortTermThatItWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, a, b := pair(t, dlock.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		other := lock(t, b.Mutex("x"))
		var ended time.Time
		time.AfterFunc(10*time.Second, func() { _ = other.Unlock(context.Background()) })
		err := dlock.Lead(ctx, a.Mutex("x"), func(context.Context, *dlock.Lease) error {
			if !ended.IsZero() {
				cancel()
				if time.Since(ended) == 0 {
					t.Error("no pause between two terms that have ended at once")
				}
			}
			ended = time.Now()
			return nil
		})
		is(t, err, context.Canceled)
	})
}

// A timed locker notes when each Lock begins and ends.
type timed struct {
	dlock.Locker
	began, ended []time.Time
}

func (l *timed) Lock(ctx context.Context) (*dlock.Lease, error) {
	l.began = append(l.began, time.Now())
	defer func() { l.ended = append(l.ended, time.Now()) }()
	return l.Locker.Lock(ctx)
}

func TestLeadPausesLongerForASilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ba, a, _ := pair(t, dlock.Options{})
		ba.Cut()
		l := &timed{Locker: a.Mutex("x")}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		f := func(context.Context, *dlock.Lease) error { return nil }
		is(t, dlock.Lead(ctx, l, f), context.DeadlineExceeded)
		for i := range 5 {
			if pause := l.began[i+1].Sub(l.ended[i]); pause < 5*time.Millisecond<<i {
				t.Errorf("pause %d is %v", i+1, pause)
			}
		}
		ba.Heal()
	})
}

// The cause of a context is said once, whatever it consists of.
func TestLeadSaysTheCauseOnce(t *testing.T) {
	for name, cause := range map[string]error{
		"loss of another lock": nil, // at the end of its maximum hold
		"two causes":           errors.Join(errShutdown, errors.New("half done")),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, _, a, b := pair(t, dlock.Options{})
				lead := func(f func(context.Context, *dlock.Lease) error) {
					t.Helper()
					parent, cancel := context.WithCancelCause(t.Context())
					defer cancel(nil)
					outer := lock(t, a.Mutex("outer", dlock.WithMaxHold(time.Minute)))
					if cause != nil {
						time.AfterFunc(time.Second, func() { cancel(cause) })
					}
					ctx := outer.Context(parent)
					err := dlock.Lead(ctx, a.Mutex("x"), f)
					if err == nil || err.Error() != context.Cause(ctx).Error() {
						t.Errorf("got %v, want %v", err, context.Cause(ctx))
					}
					_ = outer.Unlock(t.Context())
				}
				f := func(ctx context.Context, _ *dlock.Lease) error {
					<-ctx.Done()
					return context.Cause(ctx)
				}
				lead(f)
				held := lock(t, b.Mutex("x"))
				lead(f) // waits
				unlock(t, held)
			})
		})
	}
}

func TestLabelIsBounded(t *testing.T) {
	_, err := dlock.New(memory.New(nil), &dlock.Options{Label: strings.Repeat("x", 257)})
	is(t, err, dlock.ErrInvalidConfig)
	client(t, memory.New(nil), dlock.Options{Label: strings.Repeat("x", 256)})
}

// A coarse server counts in seconds.
type coarse struct{ *memory.Backend }

func (coarse) MinTTL() time.Duration { return time.Second }

func (b coarse) Acquire(ctx context.Context, r backend.Request) (*backend.Hold, error) {
	if r.TTL < time.Second {
		return nil, dlock.ErrInvalidTTL
	}
	return b.Backend.Acquire(ctx, r)
}

// What the server cannot count the client can.
func TestMaxHoldBelowTheServersUnit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.NewServer()
		a, b := client(t, coarse{memory.New(s)}, dlock.Options{}), client(t, memory.New(s), dlock.Options{})
		start := time.Now()
		lease := lock(t, a.Mutex("x", dlock.WithMaxHold(50*time.Millisecond)))
		<-lease.Done()
		is(t, lease.Err(), dlock.ErrLost)
		unlock(t, lock(t, b.Mutex("x")))
		if took := time.Since(start); took < 50*time.Millisecond || took > 60*time.Millisecond {
			t.Errorf("held for %v", took)
		}
	})
}

func TestErrorTypeOfNil(t *testing.T) {
	if got := dlock.ErrorType(nil); got != "" {
		t.Errorf("got %q", got)
	}
}

// Locks that nobody has made fail, of each kind alike, and so does what is called with them.
func TestNilAndZeroLocks(t *testing.T) {
	ctx := t.Context()
	var m *dlock.Mutex
	var rw *dlock.RWMutex
	var multi *dlock.Multi
	for _, l := range []dlock.Locker{m, rw, multi, rw.RLocker(), new(dlock.Mutex), new(dlock.RWMutex), new(dlock.Multi)} {
		lease, err := l.Lock(ctx)
		is(t, err, dlock.ErrInvalidConfig)
		is(t, lease.Unlock(ctx), dlock.ErrUnlocked)
		_, err = l.TryLock(ctx)
		is(t, err, dlock.ErrInvalidConfig)
		f := func(context.Context, *dlock.Lease) error { return errors.New("called") }
		is(t, dlock.Do(ctx, l, f), dlock.ErrInvalidConfig)
		is(t, dlock.TryDo(ctx, l, f), dlock.ErrInvalidConfig)
		is(t, dlock.Lead(ctx, l, f), dlock.ErrInvalidConfig)
	}
	for _, l := range []interface {
		Name() string
		Held(context.Context) (*dlock.Lease, bool)
	}{m, rw, new(dlock.Mutex), new(dlock.RWMutex)} {
		if _, held := l.Held(ctx); held || l.Name() != "" {
			t.Errorf("%T: held %v, name %q", l, held, l.Name())
		}
	}
	for _, l := range []dlock.RWLocker{rw, new(dlock.RWMutex)} {
		_, err := l.RLock(ctx)
		is(t, err, dlock.ErrInvalidConfig)
		_, err = l.TryRLock(ctx)
		is(t, err, dlock.ErrInvalidConfig)
	}
	for _, n := range []*dlock.NamedLocks{nil, new(dlock.NamedLocks)} {
		_, err := n.Lock(ctx, "x")
		is(t, err, dlock.ErrInvalidConfig)
		_, err = n.TryLock(ctx, "x")
		is(t, err, dlock.ErrInvalidConfig)
		_, err = n.Relock(ctx, "x")
		is(t, err, dlock.ErrNotHeld)
		is(t, n.Unlock(ctx, "x"), dlock.ErrNotHeld)
		if n.Lease("x") != nil {
			t.Error("a lease of nobody")
		}
	}
}
