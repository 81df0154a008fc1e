package quorum_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
)

// Clients stay cut off from two of three nodes for minutes. They do not keep a free lock from who reaches all
// nodes, but for the moment in which they give the front back.
func TestClientsCutOffForLongKeepNoFreeLock(t *testing.T) {
	for _, number := range []int{1, 8, 40} {
		t.Run(fmt.Sprint(number), func(t *testing.T) {
			ripe(t, 3, func(t *testing.T, s nodes) {
				front := s.front("x")
				holder, other := s.open(t, nil), s.open(t, nil)
				l := holder.lock("x")
				ctx, stop := context.WithCancel(t.Context())
				var waiters sync.WaitGroup
				for range number {
					c := s.open(t, nil)
					c.unlock(c.lock("y"))
					waiters.Go(func() {
						is(t, dlock.Do(ctx, c.Mutex("x"), nothing), context.Canceled)
						c.heal()
					})
					synctest.Wait()
					for node, link := range c.links {
						if node != front {
							link.Cut()
						}
					}
				}
				time.Sleep(5 * time.Second)
				holder.unlock(l)
				time.Sleep(20 * time.Second)
				refused, last, longest := 0, time.Now(), time.Duration(0)
				for range 400 {
					if l, err := other.try("x"); err == nil {
						other.unlock(l)
						longest, last = max(longest, time.Since(last)), time.Now()
					} else {
						is(t, err, dlock.ErrHeld)
						refused++
					}
					time.Sleep(250 * time.Millisecond)
				}
				if refused > 4 || longest > time.Second {
					t.Errorf("%d of 400 tries of a free lock are refused, for %v on end", refused, longest)
				}
				stop()
				waiters.Wait()
			})
		})
	}
}
