package quorum_test

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock"
)

// Nobody waits for a node that is far away as long as two are near, whichever node
// the order of a name begins with.
func TestDistantNode(t *testing.T) {
	const near, distance = 100 * time.Microsecond, 5 * time.Millisecond
	for away := range 3 {
		ripe(t, 3, func(t *testing.T, s nodes) {
			trips := []time.Duration{near, near, near}
			trips[away] = distance
			c, _ := s.far(t, trips...)
			m := c.Mutex("x")
			for range 3 { // they get to know each other
				ok(t, dlock.Do(t.Context(), m, nothing))
				time.Sleep(time.Second)
			}
			before := time.Now()
			ok(t, dlock.Do(t.Context(), m, nothing))
			if took := time.Since(before); took >= distance {
				t.Errorf("a cycle takes %v", took)
			}
			s.empty(t)
		})
	}
}

// A node that was near does not answer for a while. It holds up one caller for a
// moment, and the next not at all.
func TestNodeStopsBeingNear(t *testing.T) {
	const moment = 10 * time.Millisecond
	for away := range 3 {
		ripe(t, 3, func(t *testing.T, s nodes) {
			c, far := s.far(t, 0, 0, 0)
			m := c.Mutex("x")
			ok(t, dlock.Do(t.Context(), m, nothing))
			time.Sleep(time.Second)
			far[away].trip.Store(int64(100 * time.Millisecond))
			cycle := func() time.Duration {
				before := time.Now()
				ok(t, dlock.Do(t.Context(), m, nothing))
				return time.Since(before)
			}
			if took := cycle(); took > 8*moment {
				t.Errorf("a cycle takes %v", took)
			}
			time.Sleep(time.Second)
			if took := cycle(); took >= moment {
				t.Errorf("the next cycle takes %v", took)
			}
			s.empty(t)
		})
	}
}

// An answer of a distant node may be as late as that of one that is near: who waits stays
// in its queue.
func TestLateAnswerAtADistance(t *testing.T) {
	const distance, late = 30 * time.Millisecond, 40 * time.Millisecond
	ripe(t, 3, func(t *testing.T, s nodes) {
		a := s.open(t, nil)
		c, far := s.far(t, distance, distance, distance)
		for range 20 {
			ok(t, dlock.Do(t.Context(), c.Mutex("warm"), nothing))
		}
		front := s.front("x")
		far[front].trip.Store(int64(distance + late))
		l := a.lock("x")
		waits := make(chan error)
		go func() { waits <- dlock.Do(t.Context(), c.Mutex("x"), nothing) }()
		time.Sleep(time.Second)
		for i := range s {
			if n := s[i].Waiting("x"); (n == 1) != (i == front) {
				t.Errorf("%d wait at node %d, and the front is node %d", n, i, front)
			}
		}
		a.unlock(l)
		ok(t, <-waits)
		s.empty(t)
	})
}
