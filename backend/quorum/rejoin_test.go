package quorum_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend/memory"
)

// A node was away while locks were taken, and is back: with the next renewal it is asked for them, one
// after the other. One of them ends just when the node has granted it. The others are asked for all
// the same.
func TestRejoinBesideAHoldThatEnds(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		const trip, holds = 20 * time.Millisecond, 20
		c, far := s.far(t, trip, trip, trip)
		far[2].Cut()
		all := make(map[string]*dlock.Lease)
		for i := range holds {
			l, err := c.Mutex(fmt.Sprint("x", i)).Lock(t.Context())
			ok(t, err)
			all[l.Name()] = l
		}
		time.Sleep(2 * ttl / 3)
		far[2].Heal()
		asks := memory.New(s[2])
		ended := false
		for end := time.Now().Add(ttl / 2); time.Now().Before(end) && !ended; time.Sleep(time.Millisecond) {
			for name, err := range asks.Names(t.Context(), "x") {
				ok(t, err)
				ok(t, all[name].Unlock(t.Context()))
				delete(all, name)
				ended = true
				break
			}
		}
		must(t, ended, "the node is asked for no lock")
		time.Sleep(2 * holds * trip)
		if n := s[2].Names(); n != len(all) {
			t.Errorf("the node that is back has %d of %d locks", n, len(all))
		}
		for _, l := range all {
			ok(t, l.Err())
			ok(t, l.Unlock(t.Context()))
		}
	})
}
