package simulation

import (
	"context"
	"slices"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A stand is what a server in memory had of a lock when it was last looked at.
type stand struct {
	at time.Time
	backend.Snapshot
}

// over is a context that has ended: a look by it is no time, and is in vain where the server is stopped.
var over = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// look is what a server has of a lock. One that is stopped has what it had, but for what has run out.
func (s *shelves) look(place int, name string) (holders, waiters []backend.Party) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found, err := s.looks[place].Inspect(over, name); err == nil {
		s.stands[place][name] = stand{time.Now(), found}
	}
	last := s.stands[place][name]
	for _, h := range last.Holders {
		if h.Left > time.Since(last.at) {
			holders = append(holders, h)
		}
	}
	return holders, last.Waiters
}

// keepers is how many servers have a hold of a client on a lock.
func (s *shelves) keepers(name string, client int) (n int) {
	for place := range s.servers {
		holders, _ := s.look(place, name)
		for _, h := range holders {
			if s.owner(h) == client {
				n++
				break
			}
		}
	}
	return n
}

// owner is the client that a party of a lock is, or less than 0.
func (s *shelves) owner(p backend.Party) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i, found := s.owners[p.Client]; found {
		return i
	}
	return -1
}

// keptOnShelves checks that as many servers in memory as a hold takes have what b believes in. Where goroutines
// are stopped, one of them may have the mutex of a server, and a look at that is in vain.
func (r *register) keptOnShelves(b *belief) {
	if r.mayBeForgotten(b) || r.stuttered(time.Now().Add(-b.lasts())) {
		return
	}
	if n := r.w.shelves.keepers(b.name, b.client); n < r.w.plan.need() {
		r.violate("the server keeps what is believed", "%v: %d of %d in memory", b, n, r.w.plan.Servers)
	}
}

// heldOnShelves reports whether a client has a lock at as many servers in memory as it takes, or
// somebody may rest on one of them.
func (r *register) heldOnShelves(name string) bool {
	for p, until := range r.rest {
		if p.name == name && time.Now().Before(until.Add(left)) {
			return true
		}
	}
	for i := range r.w.clients {
		if r.w.shelves.keepers(name, i) >= r.w.plan.need() {
			return true
		}
	}
	return false
}

// turned reports whether another call of its client may have been ahead of c on servers in memory until
// after then: nobody hears of it when they have something else of a lock.
func (r *register) turned(c *call, name string, then time.Time) bool {
	return r.w.shelves != nil && r.demand[party{c.client, name}].last.After(then)
}

// leftOnShelves checks that nothing is left in memory of what clients had that are closed.
func (w *world) leftOnShelves() {
	r := w.reg
	r.mu.Lock()
	defer r.mu.Unlock()
	if w.shelves == nil || len(r.touches) > 0 {
		return
	}
	for _, name := range w.names() {
		for place := range w.shelves.servers {
			holders, waiters := w.shelves.look(place, name)
			if len(holders)+len(waiters) > 0 && !r.heldOnShelves(name) {
				r.violate("nothing is left behind", "%s after the end, at server %d in memory: %+v, %+v", name, place, holders, waiters)
			}
		}
	}
}

// members are the servers of a quorum. One in memory has a number, a clock, and nothing else.
func (r *register) members() []*server {
	if r.w.shelves == nil {
		return r.w.masters()
	}
	return r.w.shelves.places
}

// unasked is for how long a server in memory that has forgotten all may not be asked: it remembers from
// when it is.
func (p *Plan) unasked() time.Duration {
	switch {
	case !p.Shelves:
		return 0
	case p.isLonger():
		return longest + p.Length
	}
	return longest
}

// standsBehind reports whether a reader that is lost had no part of a server in memory at which a writer of
// another client waited, which it could not join: its hold had a bare majority for as long as that.
func (r *register) standsBehind(b *belief) bool {
	if r.w.shelves == nil || !b.shared {
		return false
	}
	me, since := r.w.label(b.client), time.Now().Add(-b.ttl)
	return slices.ContainsFunc(r.members(), func(s *server) bool {
		past := r.lock(b.name).pasts[s.index]
		if len(past) > 0 && past[0].at.After(since) && r.others(party{b.client, b.name}, b.asked) {
			return true // what was before is forgotten
		}
		return slices.ContainsFunc(r.spans(s, b.name, since), func(p span) bool { return p.bars(me) })
	})
}

// bars reports whether a reader of a client could not join, as a writer of another waits and it has no part.
func (p span) bars(me string) bool {
	mine := func(id string) bool { return p.server.owner(id) == me }
	writer := func(id string) bool { return id[0] == 'w' && !mine(id) }
	return slices.ContainsFunc(p.queue, writer) && !slices.ContainsFunc(p.holders(), mine)
}

// entersBehind reports whether c enters a lock again under a lease to read that stands behind a writer:
// its hold counts on a member that others can do without.
func (r *register) entersBehind(c *call) bool {
	return c.nested && slices.ContainsFunc(r.beliefs, func(b *belief) bool {
		return b.client == c.client && slices.Contains(c.names, b.name) && b.live() && r.standsBehind(b)
	})
}
