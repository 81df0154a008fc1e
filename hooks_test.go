package dlock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend/memory"
)

// panics calls f and reports what it panics with.
func panics(f func()) (value any) {
	defer func() { value = recover() }()
	f()
	return nil
}

// A hook that panics leaves the lock as if it had not been called, and panics on in
// the call that it is called for.
func TestHooksThatPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var armed atomic.Value
		hook := func(name string) func(dlock.Event) {
			return func(dlock.Event) {
				if armed.CompareAndSwap(name, "") {
					panic(name)
				}
			}
		}
		s := memory.NewServer()
		a := client(t, memory.New(s), dlock.Options{Hooks: dlock.Hooks{
			Waiting: hook("waiting"), Acquired: hook("acquired"), Released: hook("released"),
		}})
		b := client(t, memory.New(s), dlock.Options{})
		m := a.Mutex("x")
		panicsWith := func(name string, f func()) {
			t.Helper()
			armed.Store(name)
			if v := panics(f); v != name {
				t.Fatalf("panicked with %v, want %s", v, name)
			}
			synctest.Wait()
		}
		free := func() {
			t.Helper()
			for _, c := range []*dlock.Client{b, a} {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				l, err := c.Mutex("x").Lock(ctx)
				cancel()
				is(t, err, nil)
				unlock(t, l)
			}
		}
		wait := func(ctx context.Context, l dlock.Locker) func() {
			return func() { _, _ = l.Lock(ctx) }
		}

		here := lock(t, m) // Waiting, for a goroutine of this client
		panicsWith("waiting", wait(t.Context(), m))
		under := here.Context(t.Context()) // and under a lease
		inner, err := m.Lock(under)
		is(t, err, nil)
		panicsWith("waiting", wait(under, m))
		unlock(t, inner)
		inner, err = m.TryLock(under)
		is(t, err, nil)
		unlock(t, inner)
		unlock(t, here)
		free()

		there := lock(t, b.Mutex("x")) // on the server
		panicsWith("waiting", wait(t.Context(), m))
		panicsWith("waiting", wait(t.Context(), a.Multi([]string{"a", "x"})))
		unlock(t, there)
		free()
		unlock(t, lock(t, b.Mutex("a")))

		panicsWith("acquired", wait(t.Context(), m))
		free()
		panicsWith("acquired", wait(t.Context(), a.Multi([]string{"a", "x"})))
		free()
		unlock(t, lock(t, b.Mutex("a")))

		lease := lock(t, m)
		panicsWith("released", func() { _ = lease.Unlock(t.Context()) })
		free()
		lease = lock(t, m)
		done := queueUp(t, m, 1, func(l *dlock.Lease) { unlock(t, l) })
		panicsWith("released", func() { _ = lease.Unlock(t.Context()) })
		done.Wait()
		free()
	})
}

// A hook that never returns does not keep Close, nor the backend from being closed.
func TestCloseLeavesAHookBehind(t *testing.T) {
	hooks := map[string]func(stuck func(dlock.Event)) dlock.Hooks{
		"Released": func(stuck func(dlock.Event)) dlock.Hooks { return dlock.Hooks{Released: stuck} },
		"Lost":     func(stuck func(dlock.Event)) dlock.Hooks { return dlock.Hooks{Lost: stuck} },
		"Renewed":  func(stuck func(dlock.Event)) dlock.Hooks { return dlock.Hooks{Renewed: stuck} },
		"Rested":   func(stuck func(dlock.Event)) dlock.Hooks { return dlock.Hooks{Released: stuck} },
	}
	for name, with := range hooks {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				end := make(chan struct{})
				defer close(end)
				s := memory.NewServer()
				b, _ := newBySession(s)
				c, err := dlock.New(b, &dlock.Options{TTL: 3 * time.Second, Hooks: with(func(dlock.Event) { <-end })})
				is(t, err, nil)
				lock(t, c.Mutex("x"))
				lock(t, c.Mutex("y"))
				if name == "Rested" {
					unlock(t, lock(t, c.Mutex("z", dlock.WithMinHold(time.Second))))
				}
				time.Sleep(2 * time.Second) // of which a renewal is
				if name == "Lost" {
					s.Evict("y")
					synctest.Wait()
				}
				start := time.Now()
				err = c.Close(context.Background())
				short(t, "Close", start, 3200*time.Millisecond)
				if err == nil {
					t.Error("nothing was left behind")
				}
				if s.Names() != 0 {
					t.Error("the backend was not closed")
				}
				is(t, c.Close(context.Background()), nil)
			})
		})
	}
}
