package dlock_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend/memory"
)

// An exit is a hook that ends its goroutine, as FailNow of a test does, when it is called next.
type exit struct{ next atomic.Value }

func (e *exit) in(hook string) {
	if e.next.CompareAndSwap(hook, "") {
		runtime.Goexit()
	}
}

func (e *exit) hooks() dlock.Hooks {
	e.next.Store("")
	return dlock.Hooks{
		Acquiring:   func(ctx context.Context, _ dlock.AcquiringEvent) context.Context { e.in("acquiring"); return ctx },
		Waiting:     func(context.Context, dlock.WaitingEvent) { e.in("waiting") },
		Acquired:    func(context.Context, dlock.AcquiredEvent) { e.in("acquired") },
		NotAcquired: func(context.Context, dlock.NotAcquiredEvent) { e.in("not acquired") },
		Released:    func(context.Context, dlock.ReleasedEvent) { e.in("released") },
	}
}

// endsIn reports whether f, in a goroutine of its own, ends that at the hook.
func (e *exit) endsIn(hook string, f func()) bool {
	e.next.Store(hook)
	done, returned := make(chan struct{}), false
	go func() {
		defer close(done)
		f()
		returned = true
	}()
	<-done
	synctest.Wait()
	return !returned && e.next.Load() == ""
}

// A hook that ends the goroutine of a call leaves the lock as one that panics.
func TestHooksThatExit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var exit exit
		var ledger ledger
		s := memory.NewServer()
		a := client(t, memory.New(s), dlock.Options{Hooks: dlock.JoinHooks(ledger.hooks(), exit.hooks())})
		b := client(t, memory.New(s), dlock.Options{})
		m := a.Mutex("x")
		ends := func(hook string, f func()) {
			t.Helper()
			if !exit.endsIn(hook, f) {
				t.Errorf("%s has not ended the goroutine of its call", hook)
			}
			for _, c := range []*dlock.Client{b, a} { // and the locks are free
				lease, err := c.Multi([]string{"a", "x"}).TryLock(t.Context())
				is(t, err, nil)
				unlock(t, lease)
			}
		}
		waits := func(l, other dlock.Locker) func() {
			return func() {
				lease := lock(t, other)
				defer func() { unlock(t, lease) }()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, _ = l.Lock(ctx)
			}
		}
		ends("waiting", waits(m, m))
		ends("waiting", waits(m, b.Mutex("x")))
		ends("waiting", waits(a.Multi([]string{"a", "x"}), b.Mutex("x")))
		ends("acquiring", func() { _, _ = m.Lock(t.Context()) })
		ends("acquired", func() { _, _ = m.Lock(t.Context()) })
		ends("acquired", func() { _, _ = a.Multi([]string{"a", "x"}).Lock(t.Context()) })
		ends("released", func() { unlock(t, lock(t, m)) })
		ends("not acquired", func() {
			lease := lock(t, b.Mutex("x"))
			defer func() { unlock(t, lease) }()
			_, _ = m.TryLock(t.Context())
		})
		ledger.isBalanced(t)
	})
}

// Hooks that end a goroutine of the client's keep none from being told of the others.
func TestHooksThatExitAlone(t *testing.T) {
	for hook, end := range map[string]func(*memory.Backend, *dlock.Client){
		"lost":   func(b *memory.Backend, _ *dlock.Client) { b.Cut(); time.Sleep(time.Minute); b.Heal() },
		"closed": func(_ *memory.Backend, c *dlock.Client) { _ = c.Close(context.Background()) },
	} {
		synctest.Test(t, func(t *testing.T) {
			var ledger ledger
			b := memory.New(nil)
			c := client(t, b, dlock.Options{Hooks: dlock.JoinHooks(ledger.hooks(), dlock.Hooks{
				Lost:   func(dlock.LostEvent) { runtime.Goexit() },
				Closed: func(context.Context, dlock.ClosedEvent) { runtime.Goexit() },
			})})
			for _, name := range []string{"x", "y", "z"} {
				lock(t, c.Mutex(name))
			}
			lock(t, c.Multi([]string{"a", "b"}))
			end(b, c)
			synctest.Wait()
			if ledger.ends[hook] != 4 {
				t.Errorf("%s was told of %v", hook, ledger.ends)
			}
			ledger.isBalanced(t)
		})
	}
}
