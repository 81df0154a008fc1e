package dlock_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
)

// A farServer takes long to answer a request for a lock.
type farServer struct{ *memory.Backend }

func (b farServer) Acquire(ctx context.Context, r backend.Request) (*backend.Hold, error) {
	time.Sleep(150 * time.Millisecond)
	return b.Backend.Acquire(ctx, r)
}

// Many of one client try a lock at once that another client holds, at a server that is far away and says so each
// time. All are told that it is held, and who waits behind them waits for the lock.
func TestManyTryAHeldLockAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.NewServer()
		holder, err := dlock.New(memory.New(s), nil)
		is(t, err, nil)
		c, err := dlock.New(farServer{memory.New(s)}, nil)
		is(t, err, nil)
		l, err := holder.Mutex("x").Lock(t.Context())
		is(t, err, nil)
		var all sync.WaitGroup
		var failed atomic.Int64
		var why atomic.Value
		start := time.Now()
		for range 50 {
			all.Go(func() {
				if _, err := c.Mutex("x").TryLock(t.Context()); !errors.Is(err, dlock.ErrHeld) {
					failed.Add(1)
					why.Store(err)
				}
			})
		}
		synctest.Wait()
		waits := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			waits <- dlock.Do(ctx, c.Mutex("x"), func(context.Context, *dlock.Lease) error { return nil })
		}()
		all.Wait()
		if n := failed.Load(); n > 0 {
			t.Errorf("%d of 50 are not told that the lock is held, after %v: %v", n, time.Since(start), why.Load())
		}
		time.Sleep(10 * time.Second)
		is(t, l.Unlock(t.Context()), nil)
		if err := <-waits; err != nil {
			t.Errorf("who waits has not got the lock: %v", err)
		}
		is(t, c.Close(context.Background()), nil)
		is(t, holder.Close(context.Background()), nil)
	})
}
