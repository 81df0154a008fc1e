package quorum_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
)

// A checker stands for what the lock protects: it notices two at once, and a token that
// does not exceed the last.
type checker struct {
	t      *testing.T
	mu     sync.Mutex
	inside *dlock.Lease
	last   uint64
	visits int
}

func (r *checker) enter(l *dlock.Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inside != nil && r.inside.Err() == nil && l.Err() == nil {
		r.t.Errorf("two holders, with tokens %d and %d", r.inside.Token(), l.Token())
	}
	if l.Token() <= r.last {
		r.t.Errorf("token %d came after %d", l.Token(), r.last)
	}
	r.inside, r.last = l, max(r.last, l.Token())
	r.visits++
}

func (r *checker) leave(l *dlock.Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inside == l {
		r.inside = nil
	}
}

// Nodes restart without their data, one at a time and at any moment, with clocks
// that differ as much as they may. Clients come and go, and some are cut off. Some
// nodes are far away: of two requests the second may be there first.
func TestTokensUnderRestarts(t *testing.T) {
	const holds, clients = 500, 5
	for _, n := range []int{3, 5} {
		for _, trip := range []time.Duration{0, 20 * time.Millisecond} {
			ripe(t, n, func(t *testing.T, s nodes) { s.restart(t, holds, clients, trip) })
		}
	}
}

// restart has clients take the lock while nodes restart, a round trip away and as much again
// now and then.
func (s nodes) restart(t *testing.T, holds, clients int, trip time.Duration) {
	r := &checker{t: t}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() {
		for ctx.Err() == nil {
			victim := s[rand.N(len(s))]
			victim.Wipe()
			victim.SetClock(rand.N(skew) - skew/2)
			time.Sleep(delay + rand.N(ttl))
		}
	})
	var work sync.WaitGroup
	for range clients {
		work.Go(func() {
			c := s.openFar(t, trip)
			for range holds / clients {
				r.visit(c)
			}
		})
	}
	work.Wait()
	cancel()
	all.Wait()
	must(t, r.visits == holds, "%d of %d holds", r.visits, holds)
}

// openFar returns a client whose nodes are a round trip away, and closes it at the end of the
// test.
func (s nodes) openFar(t *testing.T, trip time.Duration) *client {
	t.Helper()
	c := &client{t: t}
	all := make([]backend.Backend, len(s))
	for i := range s {
		d := &distant{Backend: memory.New(s[i])}
		d.trip.Store(int64(trip))
		d.jitter.Store(int64(5 * trip))
		c.links = append(c.links, d.Backend)
		all[i] = d
	}
	c.Client = over(t, all, nil)
	return c
}

// visit takes the lock for a while, and now and then is cut off with it.
func (r *checker) visit(c *client) {
	l, err := c.Mutex("x").Lock(context.Background())
	if err != nil {
		r.t.Errorf("lock: %v", err)
		return
	}
	r.enter(l)
	if rand.N(5) == 0 {
		c.cut(len(c.links))
		time.Sleep(rand.N(2 * ttl))
		c.heal()
	}
	time.Sleep(rand.N(time.Second))
	r.leave(l)
	_ = l.Unlock(context.Background())
	time.Sleep(rand.N(time.Second))
}

// Two majorities meet in one node. It is told of a token that another one of its
// majority has offered, and offers a greater one to the next.
func TestTokenIsToldToAMajority(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		s[0].SetClock(skew)
		a, b := s.open(t, nil), s.open(t, nil)
		a.links[2].Cut()
		b.links[0].Cut()
		l := a.lock("x")
		a.unlock(l)
		next := b.lock("x")
		must(t, next.Token() > l.Token(), "token %d came after %d", next.Token(), l.Token())
		b.unlock(next)
		a.heal()
		b.heal()
	})
}
