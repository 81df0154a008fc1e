package dlock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
)

// distant is a server at a random distance.
type distant struct{ *memory.Backend }

// dawdle lets others run, or not, or for a while.
func dawdle() {
	switch rand.N(4) {
	case 0:
		time.Sleep(rand.N(50 * time.Microsecond))
	case 1:
		runtime.Gosched()
	}
}

func there[T any](f func() T) T {
	dawdle()
	defer dawdle()
	return f()
}

func (b distant) Acquire(ctx context.Context, r backend.Request) (h *backend.Hold, err error) {
	return h, there(func() error { h, err = b.Backend.Acquire(ctx, r); return err })
}

func (b distant) Release(ctx context.Context, h *backend.Hold) error {
	return there(func() error { return b.Backend.Release(ctx, h) })
}

func (b distant) Reenter(ctx context.Context, h *backend.Hold, entries int, seq int64) error {
	return there(func() error { return b.Backend.Reenter(ctx, h, entries, seq) })
}

func (b distant) Downgrade(ctx context.Context, h *backend.Hold) error {
	return there(func() error { return b.Backend.Downgrade(ctx, h) })
}

// A room is what the lock protects.
type room struct {
	t                *testing.T
	writers, readers atomic.Int32
}

func (r *room) write() {
	if r.writers.Add(1) != 1 || r.readers.Load() != 0 {
		r.t.Error("a writer is not alone")
	}
	dawdle()
	r.writers.Add(-1)
}

func (r *room) read() {
	r.readers.Add(1)
	if r.writers.Load() != 0 {
		r.t.Error("a reader beside a writer")
	}
	dawdle()
	r.readers.Add(-1)
}

// TestRandomly does all that can be done with a lock at once: goroutines of two
// clients write and read, enter again from several goroutines beside the one that
// unlocks, downgrade, and give up. Nobody is where he must not be, and when all have
// gone the lock is free.
func TestRandomly(t *testing.T) {
	s := memory.NewServer()
	var clients []*dlock.Client
	for range 2 {
		clients = append(clients, client(t, distant{memory.New(s)}, dlock.Options{}))
	}
	r := &room{t: t}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 1000 {
				r.visit(clients[i%2].RWMutex("x"))
			}
		})
	}
	all.Wait()
	for _, c := range clients {
		unlock(t, lock(t, c.Mutex("x")))
	}
}

func (r *room) visit(m *dlock.RWMutex) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if rand.N(5) == 0 {
		time.AfterFunc(rand.N(100*time.Microsecond), cancel)
	}
	lease := r.enter(ctx, m)
	if lease == nil {
		return
	}
	under := lease.Context(context.Background())
	if rand.N(2) == 0 {
		under = context.WithoutCancel(under) // so that an entry may come late
	}
	var all sync.WaitGroup
	for range rand.N(4) {
		all.Go(func() {
			if rand.N(5) == 0 {
				r.succeeds(lease.Downgrade(context.Background()))
			} else if inner := r.enter(under, m); inner != nil {
				r.succeeds(inner.Unlock(context.Background()))
			}
		})
	}
	dawdle()
	r.succeeds(lease.Unlock(context.Background()))
	all.Wait()
}

// enter writes or reads under the lock. It returns nil if it does not get it.
func (r *room) enter(ctx context.Context, m *dlock.RWMutex) *dlock.Lease {
	get, act := m.Lock, r.write
	if rand.N(3) == 0 {
		get, act = m.RLock, r.read
	}
	lease, err := get(ctx)
	if !r.succeeds(err) {
		return nil
	}
	act()
	return lease
}

// succeeds takes the errors that others can be the reason of.
func (r *room) succeeds(err error) bool {
	for _, kind := range []error{nil, dlock.ErrHeld, dlock.ErrUnlocked, dlock.ErrUpgrade, dlock.ErrReentry, context.Canceled} {
		if errors.Is(err, kind) {
			return err == nil
		}
	}
	r.t.Error(err)
	return false
}
