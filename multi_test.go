package dlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
)

// In whatever order the names are given, the locks are taken in one: two
// clients that want the same ones cannot wait for each other.
func TestMultiLocksInOneOrder(t *testing.T) {
	for _, names := range [][]string{{"a", "b"}, {"b", "a"}} {
		synctest.Test(t, func(t *testing.T) {
			_, _, a, b := pair(t, dlock.Options{})
			first := lock(t, b.Mutex("a"))
			done := queueUp(t, a.Multi(names), 1, func(all *dlock.Lease) { unlock(t, all) })
			other, err := b.Mutex("b").TryLock(t.Context())
			if err != nil {
				t.Errorf("%v: b is locked before a: %v", names, err)
			} else {
				unlock(t, other)
			}
			unlock(t, first)
			done.Wait()
		})
	}
}

// What a multi-lock has had of its locks when it fails, nobody has held: that need
// not last.
func TestMultiThatFailsIsBrief(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, a, b := pair(t, dlock.Options{})
		other := lock(t, b.Mutex("b"))
		_, err := a.Multi([]string{"a", "b"}, dlock.WithMinHold(time.Hour)).TryLock(t.Context())
		is(t, err, dlock.ErrHeld)
		unlock(t, other)
		lease, err := b.Mutex("a").TryLock(t.Context())
		is(t, err, nil)
		unlock(t, lease)
	})
}

// The server falls silent while a multi-lock waits for its second lock.
func TestMultiKeepsToItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ba, a, b := pair(t, dlock.Options{})
		other := lock(t, b.Mutex("b"))
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		time.AfterFunc(time.Second, ba.Cut)
		start := time.Now()
		_, err := a.Multi([]string{"a", "b"}).Lock(ctx)
		is(t, err, dlock.ErrHeld)
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("took %v", took)
		}
		ba.Heal()
		unlock(t, other)
	})
}
