package dlock_test

import (
	"testing"
	"testing/synctest"

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
