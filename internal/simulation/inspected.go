package simulation

import (
	"slices"
	"strconv"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// An entering is a count of entries that a server has had of a hold.
type entering struct {
	at      time.Time
	id      string
	entries int
}

// enters takes how often the holder of a lock has entered it, by the word of a server.
func (r *register) enters(name, id, count string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, _ := strconv.Atoi(count)
	log := r.entries[name]
	if i := len(log) - 1; id == "" || i >= 0 && log[i].id == id && log[i].entries == n {
		return
	}
	r.entries[name] = append(log[max(len(log)-100, 0):], entering{time.Now(), id, n})
}

// hasEntered reports whether a server had counted so many entries at some moment since then.
func (r *register) hasEntered(name, id string, n int, since time.Time) bool {
	log := r.entries[name]
	for i := len(log) - 1; i >= 0; i-- {
		if log[i].id == id && max(log[i].entries, 1) == n {
			return true
		}
		if log[i].at.Before(since) {
			return false
		}
	}
	return true // all that is known began later
}

// showsAsItIs checks that one server has had a lock, at some moment, as Inspect shows it: who waits in
// what order, and who has it, for how long and how often entered.
func (r *register) showsAsItIs(c *call, s dlock.Snapshot) {
	if r.w.plan.Small { // an answer in several parts is that of several moments
		return
	}
	all := r.during(c.names[0], c.start)
	for i, w := range s.Waiters {
		// Readers ask side by side, and while others of their client read if a writer is ahead of them.
		bars := func(o dlock.Party) bool {
			return o.Client == w.Client && (o.Mode == backend.Exclusive || w.Mode == backend.Exclusive)
		}
		again, holds := slices.ContainsFunc(s.Waiters[:i], bars), slices.ContainsFunc(s.Holders, bars)
		if (again || holds && !slices.ContainsFunc(all, func(p period) bool { return p.rests(w.Client) })) && !turnsTo(all, w.Client) {
			r.waitsTwice(c, w, i)
		}
	}
	if !slices.ContainsFunc(all, func(p period) bool { return r.isAs(c, p, s) }) {
		r.violate("a question is answered truly", "c%d inspect %v: %+v, as it was at no moment", c.client, c.names, s)
	}
}

// waitsTwice takes a waiter that Inspect has shown, and that has the lock or waits twice. Requests with
// another TTL stand for themselves, and one that was given up may be there for a moment, or for as long as a
// place is kept where somebody else has had a key of the lock as it was.
func (r *register) waitsTwice(c *call, w dlock.Party, place int) {
	client := r.clientWith(c.names[0], w.Client)
	if client < 0 || r.least < r.w.plan.TTL || r.closing[client] || r.dead[client] || r.gaveUp[party{client, c.names[0]}].After(c.start.Add(-lingers)) || r.isStrange(c.names[0], c.start.Add(-longestTTL(r.w.plan.TTL)-lingers)) {
		return
	}
	r.violate("a waiter is one", "c%d inspect %v: c%d waits at %d, and has the lock or waits before", c.client, c.names, client, place)
}

// turnsTo reports whether a client has begun to be told of grants, or to ask for them: it queues under another
// id then, and gives up the one before, which may have got the lock meanwhile.
func turnsTo(all []period, client string) bool {
	asks, hears := false, false
	for _, p := range all {
		for _, id := range append(p.holders(), p.queue...) {
			asks = asks || clientOf(id) == client && polled.MatchString(id)
			hears = hears || clientOf(id) == client && !polled.MatchString(id)
		}
	}
	return asks && hears
}

// clientWith is the client that has that id in the library.
func (r *register) clientWith(name, id string) int {
	s := r.w.keeper(name)
	label, _ := s.owners.Load(id)
	text, _ := label.(string)
	return r.w.indexOf(text)
}

// rests reports whether a server keeps a hold of a client that this has given back.
func (p *period) rests(client string) bool {
	return slices.ContainsFunc(p.holders(), func(id string) bool { return clientOf(id) == client && id[len(id)-1] == '!' })
}

// isAs reports whether a server had a lock as s at some moment of a period.
func (r *register) isAs(c *call, p period, s dlock.Snapshot) bool {
	queue := p.queue
	for _, w := range s.Waiters { // who is not alive is left out
		i := slices.IndexFunc(queue, func(id string) bool { return clientOf(id) == w.Client && modeOf(id) == w.Mode })
		if i < 0 {
			return false
		}
		queue = queue[i+1:]
	}
	for _, h := range s.Holders {
		if !slices.ContainsFunc(p.holders(), func(id string) bool { return clientOf(id) == h.Client && r.isHeldAs(c, p, id, h) }) {
			return false
		}
	}
	return true
}

// isHeldAs reports whether a server had a hold as h at some moment of a period.
func (r *register) isHeldAs(c *call, p period, id string, h dlock.Party) bool {
	ends, mode := p.readers[id], backend.Shared
	if id == p.holder {
		ends, mode = p.expiry, backend.Exclusive
	}
	left, to := h.Left.Milliseconds(), p.to
	if r.w.plan.Replica { // it has a hold for as long as it is behind
		to += r.w.plan.Lag.Milliseconds()
	}
	entered := mode == backend.Shared && h.Entries == 1 || mode == backend.Exclusive && r.hasEntered(c.names[0], id, h.Entries, c.start)
	return h.Mode == mode && entered && left >= ends-to-moment && left <= ends-p.from+moment
}

// modeOf is how who waits under an id wants to have the lock.
func modeOf(id string) backend.Mode {
	if id[0] == 'r' {
		return backend.Shared
	}
	return backend.Exclusive
}
