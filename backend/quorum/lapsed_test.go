package quorum_test

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock"
)

// One of three nodes is cut off from the holder for longer than a lease: what it had granted is
// over there. Another loses the lock, and says so: the holder has one node, and has lost the
// lock before the next has it.
func TestLossBesideAPartThatHasRunOut(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		a, b := s.open(t, nil), s.open(t, nil)
		l := a.lock("x")
		a.links[2].Cut()
		defer a.heal()
		time.Sleep(3 * ttl)
		ok(t, l.Err())
		s[0].Evict("x")
		time.Sleep(100 * time.Millisecond)
		next, err := b.try("x")
		if err == nil {
			defer b.unlock(next)
			is(t, l.Err(), dlock.ErrLost)
		}
	})
}

// One of three nodes has missed the last renewal, and is cut off. One of the two that have not loses
// the lock, and says so: what is left lasts no longer than the first.
func TestLossBesideAPartThatRunsOut(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		a, b := s.open(t, nil), s.open(t, nil)
		l := a.lock("x")
		time.Sleep(ttl / 6)
		a.links[2].Cut()
		defer a.heal()
		time.Sleep(ttl / 4) // the others are renewed
		s[0].Evict("x")
		next := b.lock("x")
		defer b.unlock(next)
		is(t, l.Err(), dlock.ErrLost)
	})
}

// The holder is cut off from one of three nodes, and whoever breaks its hold from another. Break has
// ended all that two nodes have of it, and the holder hears of that with the next renewal at the latest.
// Who breaks it cannot know that none of the two joins it anew.
func TestBrokenBesideAPartThatHasRunOut(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		a, b := s.open(t, nil), s.open(t, nil)
		l := a.lock("x")
		a.links[2].Cut()
		defer a.heal()
		time.Sleep(3 * ttl)
		ok(t, l.Err())
		b.links[1].Cut()
		defer b.heal()
		is(t, b.Break(t.Context(), "x", l.Token()), dlock.ErrUnavailable)
		next := b.lock("x")
		defer b.unlock(next)
		time.Sleep(ttl/3 + time.Second)
		is(t, l.Err(), dlock.ErrLost)
	})
}
