package dlock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/dlock-go/dlock"
)

func TestDoOfAClosedClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, a, b := pair(t, dlock.Options{})
		err := dlock.Do(t.Context(), a.Mutex("x"), func(context.Context, *dlock.Lease) error {
			is(t, a.Close(t.Context()), nil)
			unlock(t, lock(t, b.Mutex("x")))
			return nil
		})
		is(t, err, dlock.ErrClosed)
	})
}

// What f lost was another lock.
func TestLeadReturnsTheLossOfAnotherLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, a, _ := pair(t, dlock.Options{})
		halfDone, terms := errors.New("half done"), 0
		err := dlock.Lead(t.Context(), a.Mutex("leader"), func(ctx context.Context, _ *dlock.Lease) error {
			if terms++; terms > 1 {
				return nil
			}
			return dlock.Do(ctx, a.Mutex("work"), func(ctx context.Context, _ *dlock.Lease) error {
				s.Evict("work")
				<-ctx.Done()
				return halfDone
			})
		})
		is(t, err, halfDone, dlock.ErrLost)
		if terms != 1 {
			t.Errorf("%d terms", terms)
		}
	})
}
