package quorum_test

import (
	"fmt"
	"testing"
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
				stop := s.cutOff(t, number, func(int) int { return front })
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
			})
		})
	}
}
