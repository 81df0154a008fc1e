package quorum_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
)

// A node has lost the locks of a client. With the next renewal it is asked for them. One
// of them ends just when the node has granted it. The others, which are more than are asked for
// at a time, are asked for all the same, before the next renewal.
func TestRejoinBesideAHoldThatEnds(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		const trip, holds = 20 * time.Millisecond, 250
		c, _ := s.far(t, trip, trip, trip)
		var mu sync.Mutex
		var locking sync.WaitGroup
		all := make(map[string]*dlock.Lease)
		for i := range holds {
			locking.Go(func() {
				l, err := c.Mutex(fmt.Sprint("x", i)).Lock(t.Context())
				ok(t, err)
				mu.Lock()
				defer mu.Unlock()
				all[l.Name()] = l
			})
		}
		locking.Wait()
		time.Sleep(time.Second)
		for name := range all {
			s[2].Evict(name)
		}
		asks := memory.New(s[2])
		had, ended := make(map[string]bool), false
		for end := time.Now().Add(ttl / 2); time.Now().Before(end) && !ended; time.Sleep(time.Millisecond) {
			for name, err := range asks.Names(t.Context(), "x") {
				ok(t, err)
				if !had[name] && len(had) == 3 {
					ok(t, all[name].Unlock(t.Context()))
					delete(all, name)
					ended = true
				}
				had[name] = true
			}
		}
		must(t, ended, "the node is asked for no lock")
		time.Sleep(ttl / 10)
		if n := s[2].Names(); n != len(all) {
			t.Errorf("the node has %d of %d locks", n, len(all))
		}
		for _, l := range all {
			ok(t, l.Err())
			ok(t, l.Unlock(t.Context()))
		}
	})
}

// A node that is far away has lost a thousand locks of a client, and votes again. It has them soon: who holds them
// counts on that when the next node goes.
func TestManyRejoinAFarNode(t *testing.T) {
	const trip, locks, soon = 100 * time.Millisecond, 1000, 15 * time.Second
	ripe(t, 3, func(t *testing.T, s nodes) {
		c, _ := s.far(t, trip, trip, trip)
		ok(t, dlock.Do(t.Context(), c.Mutex("warm"), nothing))
		var all sync.WaitGroup
		for i := range locks {
			all.Go(func() {
				_, err := c.Mutex(fmt.Sprint("x", i)).Lock(t.Context())
				ok(t, err)
			})
		}
		all.Wait()
		s[0].Wipe()
		time.Sleep(delay + soon)
		if n := s[0].Names(); n != locks {
			t.Errorf("the node has %d of %d locks", n, locks)
		}
	})
}

// A choosyNode denies locks whose names begin with d, as one whose user has rights on some keys alone, and counts that.
type choosyNode struct {
	*memory.Backend
	denials *atomic.Int32
}

func (n choosyNode) Vote(ctx context.Context, r backend.Request, v backend.Ballot) (*backend.Hold, error) {
	if r.Name[0] == 'd' {
		n.denials.Add(1)
		return nil, backend.ErrAuth
	}
	return n.Backend.Vote(ctx, r, v)
}

// A node denies half of the locks of a client, and has lost the other half. It has those again soon after it votes.
// One that denies all is asked for few.
func TestRejoinBesideHoldsThatAreDenied(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		const locks = 500
		var denials atomic.Int32
		c := over(t, []backend.Backend{choosyNode{memory.New(s[0]), &denials}, memory.New(s[1]), memory.New(s[2])}, nil)
		var others []*dlock.Lease
		for i := range locks {
			_, err := c.Mutex(fmt.Sprint("d", i)).Lock(t.Context())
			ok(t, err)
			l, err := c.Mutex(fmt.Sprint("x", i)).Lock(t.Context())
			ok(t, err)
			others = append(others, l)
		}
		s[0].Wipe()
		time.Sleep(delay + ttl)
		if n := s[0].Names(); n != locks {
			t.Errorf("the node has %d of %d locks", n, locks)
		}
		for _, l := range others {
			ok(t, l.Unlock(t.Context()))
		}
		time.Sleep(ttl)
		before := denials.Load()
		time.Sleep(ttl)
		if n := denials.Load() - before; n > 50 {
			t.Errorf("a node that denies all is asked %d times within a lease", n)
		}
	})
}
