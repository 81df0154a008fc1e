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
	got    atomic.Int64 // leases that calls have returned
	after  atomic.Int64 // calls that are still to be made
}

var hookLoadNames = []string{"a", "b", "c"}

// TestHooksRandomly checks after 100,000 calls that every call and every lease had one
// end, and that the hooks were told of just as many as there were.
func TestHooksRandomly(t *testing.T) {
	const clients, workers = 3, 6
	w := &hookLoad{t: t, server: memory.NewServer()}
	w.after.Store(100_000)
	if testing.Short() {
		w.after.Store(10_000)
	}
	hooks := w.hooks()
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
	t.Logf("%d calls: %v, %v", w.begun, w.outcomes, w.ends)
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
					w.visit(c)
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
			_ = c.Close(context.Background())
		}
	})
	all.Wait()
	_ = c.Close(context.Background())
}

func (w *hookLoad) acquire(ctx context.Context, c *dlock.Client) (*dlock.Lease, error) {
	w.after.Add(-1)
	w.calls.Add(1)
	name := hookLoadNames[rand.N(3)]
	m := c.RWMutex(name)
	var lease *dlock.Lease
	var err error
	switch rand.N(8) {
	case 0:
		lease, err = m.TryLock(ctx)
	case 1:
		lease, err = m.TryRLock(ctx)
	case 2, 3:
		lease, err = m.RLock(ctx)
	case 4:
		lease, err = c.Multi(hookLoadNames[:2]).Lock(ctx)
	case 5:
		lease, err = c.Mutex(name, dlock.WithMaxWait(time.Millisecond)).Lock(ctx)
	default:
		lease, err = m.Lock(ctx)
	}
	if err == nil {
		w.got.Add(1)
	}
	return lease, err
}

func (w *hookLoad) visit(c *dlock.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), rand.N(3*time.Millisecond))
	defer cancel()
	if rand.N(5) == 0 {
		time.AfterFunc(rand.N(100*time.Microsecond), cancel)
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
