package dlock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend/memory"
)

// A hookLoad is random work of many goroutines on a few locks, whose clients come and
// go, while the server takes locks away and connections fail.
type hookLoad struct {
	ledger
	t      *testing.T
	server *memory.Server
	calls  atomic.Int64
	got    atomic.Int64 // leases that calls have returned, or that a panic of the hook Acquired has taken from them
	after  atomic.Int64 // calls that are still to be made
	panics atomic.Int64 // of hooks
}

var hookLoadNames = []string{"a", "b", "c"}

// errHook is what a hook panics with, errClosedHook what the hook Closed does.
var (
	errHook       = errors.New("a hook panics")
	errClosedHook = errors.New("the hook Closed panics")
)

// panicSometimes panics once in a while.
func panicSometimes(with error) {
	if rand.N(200) == 0 {
		panic(with)
	}
}

// panicking are hooks that panic once in a while.
func (w *hookLoad) panicking() dlock.Hooks {
	return dlock.Hooks{
		Acquiring: func(ctx context.Context, _ dlock.AcquiringEvent) context.Context { panicSometimes(errHook); return ctx },
		Waiting:   func(context.Context, dlock.WaitingEvent) { panicSometimes(errHook) },
		Acquired: func(context.Context, dlock.AcquiredEvent) {
			returned := false
			defer func() {
				if !returned {
					w.got.Add(1)
				}
			}()
			panicSometimes(errHook)
			returned = true
		},
		NotAcquired: func(context.Context, dlock.NotAcquiredEvent) { panicSometimes(errHook) },
		Released:    func(context.Context, dlock.ReleasedEvent) { panicSometimes(errHook) },
		Closed:      func(context.Context, dlock.ClosedEvent) { panicSometimes(errClosedHook) },
	}
}

// survive runs f, which may end with a panic of a hook.
func (w *hookLoad) survive(f func()) {
	defer func() {
		switch v := recover(); v {
		case nil:
		case errHook, errClosedHook:
			w.panics.Add(1)
		default:
			panic(v)
		}
	}()
	f()
}

// TestHooksRandomly checks after 100,000 calls that every call and every lease had one
// end, and that the hooks were told of just as many as there were, while others that are
// joined with them panic.
func TestHooksRandomly(t *testing.T) {
	const clients, workers = 3, 6
	w := &hookLoad{t: t, server: memory.NewServer()}
	w.after.Store(100_000)
	if testing.Short() {
		w.after.Store(10_000)
	}
	hooks := dlock.JoinHooks(w.hooks(), w.panicking())
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for w.after.Load() > 0 {
				w.clientLife(hooks, workers)
			}
		})
	}
	faults := make(chan struct{})
	go func() {
		defer close(faults)
		for w.after.Load() > 0 {
			w.server.Evict(hookLoadNames[rand.N(3)])
			time.Sleep(rand.N(2 * time.Millisecond))
		}
	}()
	all.Wait()
	<-faults
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline) && w.isOpen(); {
		time.Sleep(10 * time.Millisecond)
	}
	w.isBalanced(t)
	got := 0
	for _, n := range w.ends {
		got += n
	}
	if int64(w.begun) != w.calls.Load() || int64(w.outcomes["acquired"]) != w.got.Load() || int64(got) != w.got.Load() {
		t.Errorf("%d calls, %d leases; the hooks were told of %d calls, %v, and of %v", w.calls.Load(), w.got.Load(), w.begun, w.outcomes, w.ends)
	}
	t.Logf("%d calls: %v, %v, %d panics", w.begun, w.outcomes, w.ends, w.panics.Load())
	if w.panics.Load() == 0 {
		t.Error("no hook has panicked")
	}
	for _, what := range []string{"acquired", "held", "canceled", "failed"} {
		if w.outcomes[what] == 0 {
			t.Errorf("no call was %s", what)
		}
	}
	for _, what := range []string{"released", "lost", "closed"} {
		if w.ends[what] == 0 {
			t.Errorf("no lease was %s", what)
		}
	}
}

func (w *hookLoad) isOpen() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ledger.calls != 0 || w.waiting != 0 || len(w.open) != 0
}

// clientLife opens a client, has workers use it, and closes it in the middle of their
// work.
func (w *hookLoad) clientLife(hooks dlock.Hooks, workers int) {
	b := memory.New(w.server)
	c, err := dlock.New(b, &dlock.Options{TTL: 300 * time.Millisecond, Hooks: hooks})
	if err != nil {
		w.t.Error(err)
		return
	}
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for range 300 {
				if w.after.Load() > 0 {
					w.survive(func() { w.visit(c) })
				}
			}
		})
	}
	all.Go(func() {
		time.Sleep(rand.N(30 * time.Millisecond))
		b.Cut()
		time.Sleep(rand.N(5 * time.Millisecond))
		b.Heal()
		time.Sleep(rand.N(50 * time.Millisecond))
		if rand.N(2) == 0 {
			w.survive(func() { _ = c.Close(context.Background()) })
		}
	})
	all.Wait()
	w.survive(func() { _ = c.Close(context.Background()) })
}

func (w *hookLoad) acquire(ctx context.Context, c *dlock.Client) (*dlock.Lease, error) {
	name := hookLoadNames[rand.N(3)]
	m := c.RWMutex(name)
	call := m.Lock
	switch rand.N(8) {
	case 0:
		call = m.TryLock
	case 1:
		call = m.TryRLock
	case 2, 3:
		call = m.RLock
	case 4:
		call = c.Multi(hookLoadNames[:2]).Lock
	case 5:
		call = c.Mutex(name, dlock.WithMaxWait(time.Millisecond)).Lock
	}
	return counted{w, call}.Lock(ctx)
}

// A counted is a Locker of which the load counts the calls and leases.
type counted struct {
	w    *hookLoad
	call func(context.Context) (*dlock.Lease, error)
}

func (l counted) Lock(ctx context.Context) (*dlock.Lease, error) {
	l.w.after.Add(-1)
	l.w.calls.Add(1)
	defer func() { // the client may be closed just when the lock is acquired: the hook takes the lease from the call
		if v := recover(); v != nil {
			if v == errClosedHook {
				l.w.got.Add(1)
			}
			panic(v)
		}
	}()
	lease, err := l.call(ctx)
	if err == nil {
		l.w.got.Add(1)
	}
	return lease, err
}

func (l counted) TryLock(ctx context.Context) (*dlock.Lease, error) { return l.Lock(ctx) }

func (w *hookLoad) visit(c *dlock.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), rand.N(3*time.Millisecond))
	defer cancel()
	if rand.N(5) == 0 {
		time.AfterFunc(rand.N(100*time.Microsecond), cancel)
	}
	switch rand.N(20) {
	case 0:
		_ = dlock.Do(ctx, counted{w, c.Mutex("a").Lock}, func(context.Context, *dlock.Lease) error { dawdle(); return nil })
		return
	case 1:
		_ = dlock.TryDo(ctx, counted{w, c.Mutex("b").TryLock}, func(context.Context, *dlock.Lease) error { dawdle(); return nil })
		return
	case 2:
		_ = dlock.Lead(ctx, counted{w, c.Mutex("c").Lock}, func(context.Context, *dlock.Lease) error { dawdle(); return nil })
		return
	}
	lease, err := w.acquire(ctx, c)
	if err != nil {
		return
	}
	if rand.N(4) == 0 {
		if inner, err := w.acquire(lease.Context(ctx), c); err == nil {
			defer w.leave(inner)
		}
	}
	if rand.N(10) == 0 {
		_ = lease.Downgrade(ctx)
	}
	dawdle()
	w.leave(lease)
}

// leave unlocks the lease, or forgets it: then it ends with its client.
func (w *hookLoad) leave(lease *dlock.Lease) {
	if rand.N(200) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if err := lease.Unlock(ctx); errors.Is(err, dlock.ErrUnlocked) {
		w.t.Error(err)
	}
}
