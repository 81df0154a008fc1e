package dlock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
)

// bySession is a backend whose server keeps no hold without its client.
type bySession struct {
	backend.Backend
	backend.Renewer
}

func newBySession(s *memory.Server) (bySession, *memory.Backend) {
	b := memory.New(s)
	return bySession{b, b}, b
}

// A hold that is lost in its rest is nobody's from then on: neither does this client
// say that it is held, nor does Close wait for what remains.
func TestLossEndsARest(t *testing.T) {
	for name, take := range map[string]func(*memory.Server, *memory.Backend){
		"Evicted": func(s *memory.Server, _ *memory.Backend) { s.Evict("x") },
		"CutOff":  func(_ *memory.Server, b *memory.Backend) { b.Cut(); time.Sleep(time.Second); b.Heal() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := memory.NewServer()
				sb, b := newBySession(s)
				lost, released := 0, 0
				a, err := dlock.New(sb, &dlock.Options{TTL: time.Second, Hooks: dlock.Hooks{
					Lost:     func(dlock.LostEvent) { lost++ },
					Released: func(context.Context, dlock.ReleasedEvent) { released++ },
				}})
				is(t, err, nil)
				m := a.Mutex("x", dlock.WithMinHold(time.Hour))
				unlock(t, lock(t, m))
				time.Sleep(time.Minute)
				take(s, b)
				synctest.Wait()
				start := time.Now()
				unlock(t, lock(t, a.Mutex("x")))
				short(t, "Lock after the loss", start, 0)
				if lost != 0 || released != 2 {
					t.Errorf("the hooks were told of %d losses and %d releases, want two releases: a lease ends with Unlock", lost, released)
				}
				is(t, a.Close(t.Context()), nil)
				short(t, "Close", start, 0)
			})
		})
	}
}

func TestLossEndsARestInSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sb, b := newBySession(memory.NewServer())
		a := client(t, sb, dlock.Options{TTL: 2 * time.Second})
		unlock(t, lock(t, a.Mutex("x", dlock.WithMinHold(time.Hour))))
		b.Cut()
		time.Sleep(3 * time.Second)
		if _, err := a.Mutex("x").TryLock(t.Context()); !errors.Is(err, dlock.ErrUnavailable) || errors.Is(err, dlock.ErrHeld) {
			t.Error(err)
		}
		b.Heal()
	})
}

// Close waits for the rest of what it has unlocked itself, until that is lost.
func TestLossEndsARestInClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.NewServer()
		sb, _ := newBySession(s)
		a, err := dlock.New(sb, &dlock.Options{TTL: time.Second})
		is(t, err, nil)
		lease := lock(t, a.Mutex("x", dlock.WithMinHold(time.Hour)))
		closed := make(chan error)
		go func() { closed <- a.Close(context.Background()) }()
		time.Sleep(time.Minute)
		select {
		case <-closed:
			t.Error("Close has not waited for the rest")
		default:
		}
		start := time.Now()
		s.Evict("x")
		is(t, <-closed, nil)
		short(t, "Close", start, 0)
		is(t, lease.Err(), dlock.ErrClosed)
	})
}
