package quorum_test

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
)

// No node takes the end of a hold, and each keeps its part for a lease. Nobody gets the lock until
// then, and Unlock says so, as it does without a minimum hold.
func TestExpiryThatAllDeny(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		all, _ := s.denyingNodes(0, 1, 2)
		l, err := over(t, all, nil).Mutex("x", dlock.WithMinHold(time.Second)).Lock(t.Context())
		ok(t, err)
		if err := l.Unlock(t.Context()); !errors.Is(err, dlock.ErrAuth) {
			t.Errorf("Unlock: %v, want %v", err, dlock.ErrAuth)
		}
		b := s.open(t, nil)
		b.unlock(b.lock("x"))
	})
}

// A node grants, and denies to end any hold, as one whose user has no +hdel. What it is told again
// does not grow with the locks that were taken and given back.
func TestDeniedReleasesOfMany(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		all, deniers := s.denyingNodes(2)
		c := over(t, all, nil)
		before := runtime.NumGoroutine()
		const n = 2000
		for i := range n {
			l, err := c.Mutex(fmt.Sprint("x", i)).Lock(t.Context())
			ok(t, err)
			ok(t, l.Unlock(t.Context()))
			time.Sleep(time.Millisecond)
		}
		more := runtime.NumGoroutine() - before
		asked := deniers[2].asked.Load()
		time.Sleep(time.Second)
		if asked = deniers[2].asked.Load() - asked; more > 100 || asked > 100 {
			t.Errorf("%d goroutines are left of %d locks that were given back, and ask %d times in a second", more, n, asked)
		}
	})
}
