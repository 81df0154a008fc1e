package quorum_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
)

// slowDown has the ways to all nodes but the front take that long.
func slowDown(ways []*distant, front int, trip time.Duration) {
	for i, d := range ways {
		if i != front {
			d.trip.Store(int64(trip))
		}
	}
}

// lockSoon locks x in the background, and keeps it for some time. It sends when it had it.
func lockSoon(t *testing.T, all *sync.WaitGroup, c *dlock.Client, keeps time.Duration) <-chan time.Time {
	got := make(chan time.Time, 1)
	all.Go(func() {
		ok(t, dlock.Do(t.Context(), c.Mutex("x"), func(context.Context, *dlock.Lease) error {
			got <- time.Now()
			time.Sleep(keeps)
			return nil
		}))
	})
	return got
}

// The way of the first who waits to the other nodes gets longer, for good or for one request, as where
// connections are made anew. They are slow, and not away: nobody who came later is let in before.
func TestSlowNodesCostNoPlace(t *testing.T) {
	for _, slow := range []time.Duration{200, 300, 400, 600, 800, 1200} {
		for _, passes := range []bool{false, true} {
			ripe(t, 3, func(t *testing.T, s nodes) {
				const trip = 20 * time.Millisecond
				slow := slow * time.Millisecond
				front, holder := s.front("x"), s.open(t, nil)
				c, ways := s.far(t, trip, trip, trip)
				for range 10 {
					ok(t, dlock.Do(t.Context(), c.Mutex("warm"), nothing))
				}
				l := holder.lock("x")
				var all sync.WaitGroup
				first := lockSoon(t, &all, c, 0)
				time.Sleep(time.Second)
				slowDown(ways, front, slow)
				if passes {
					time.AfterFunc(slow/2-trip/2, func() { slowDown(ways, front, trip) })
				}
				for range 3 {
					lockSoon(t, &all, s.open(t, nil).Client, 5*time.Second)
					time.Sleep(time.Millisecond)
				}
				free := time.Now()
				holder.unlock(l)
				if took := (<-first).Sub(free); took > 4*time.Second {
					t.Errorf("nodes take %v (for one request: %v), and who was first had the lock after %v", slow, passes, took)
				}
				all.Wait()
			})
		}
	}
}

// The ways of all who wait get longer, as where nodes have much to do. The first has the lock as soon as they
// answer: nobody else could have it sooner.
func TestSlowNodesKeepNoFreeLock(t *testing.T) {
	const waiters, trip = 40, 5 * time.Millisecond
	ripe(t, 3, func(t *testing.T, s nodes) {
		front, holder := s.front("x"), s.open(t, nil)
		l := holder.lock("x")
		var all sync.WaitGroup
		var first atomic.Int64
		var each [][]*distant
		free := time.Now().Add(time.Hour)
		for range waiters {
			c, ways := s.far(t, trip, trip, trip)
			each = append(each, ways)
			for range 5 {
				ok(t, dlock.Do(t.Context(), c.Mutex("warm"), nothing))
			}
			all.Go(func() {
				ok(t, dlock.Do(t.Context(), c.Mutex("x"), func(context.Context, *dlock.Lease) error {
					first.CompareAndSwap(0, int64(time.Since(free)))
					return nil
				}))
			})
			time.Sleep(20 * time.Millisecond)
		}
		for _, ways := range each {
			slowDown(ways, front, 400*time.Millisecond)
		}
		free = time.Now()
		holder.unlock(l)
		all.Wait()
		if took := time.Duration(first.Load()); took > 2*time.Second {
			t.Errorf("a free lock for which %d wait was taken after %v", waiters, took)
		}
	})
}
