package dlock_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
)

// A doubtful backend says of each request that the lock is not free, as a quorum does when one of its
// nodes says so and the others have not answered.
type doubtful struct{ backend.Backend }

func (d doubtful) Acquire(ctx context.Context, r backend.Request) (*backend.Hold, error) {
	r.Queued()
	return d.Backend.Acquire(ctx, r)
}

// TryLock waits for no lock, and hooks are not told that it does.
func TestATryIsNotToldToWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		waits := 0
		var got dlock.AcquiredEvent
		c, err := dlock.New(doubtful{memory.New(memory.NewServer())}, &dlock.Options{Hooks: dlock.Hooks{
			Waiting:  func(context.Context, dlock.WaitingEvent) { waits++ },
			Acquired: func(_ context.Context, e dlock.AcquiredEvent) { got = e },
		}})
		is(t, err, nil)
		defer c.Close(context.Background())
		lease, err := c.Mutex("x").TryLock(t.Context())
		is(t, err, nil)
		unlock(t, lease)
		if waits > 0 || got.Queued || got.HandOver != dlock.NoHandOver {
			t.Errorf("a try has waited %d times: %+v", waits, got)
		}
		unlock(t, lock(t, c.Mutex("x")))
		if waits != 1 || !got.Queued || got.HandOver != dlock.RemoteHandOver {
			t.Errorf("a lock has waited %d times: %+v", waits, got)
		}
	})
}
