package simulation

import (
	"slices"
	"time"
)

// A client passes a lock that no other client wants from one of its goroutines to the next, and has its
// readers share one hold. Neither asks the server for anything.

// A succession is a lock that an Unlock has to pass on.
type succession struct {
	at    time.Time
	asked int     // scripts that the client had run about the lock
	next  []*call // who waits for it
}

// isPlain reports whether an op asks for a lock in the way that is usual for its client.
func (op *Op) isPlain() bool {
	return op.TTL == 0 && op.Label == "" && op.MaxHold == 0 && op.MinHold == 0 && !op.ByName
}

// asksAbout is how many scripts a client has run about a lock, at all servers.
func (r *register) asksAbout(p party) (n int) {
	for i, asked := range r.asked {
		if i.client == p.client && i.name == p.name {
			n += asked
		}
	}
	return n
}

// passesOn notes that an Unlock begins after which the next goroutine of the client has the lock.
func (a *actor) passesOn(all []*belief, op *Op) {
	r := a.w.reg
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(all) != 1 || len(op.AtOnce) > 0 || len(op.Inside) > 0 || op.Downgrade || !op.isPlain() {
		return
	}
	b := all[0]
	p := party{b.client, b.name}
	if b.gone || b.shared || b.multi || b.parent != nil || !b.live() || !r.isPassedOn(p, b.granted) {
		return
	}
	if next := r.standing(p); next != nil {
		r.passings[p] = &succession{time.Now(), r.asksAbout(p), next}
	}
}

// isPassedOn reports whether a hold of a client is one that it passes on, of which it has had a lease since
// then: nobody else wants the lock, nothing is wrong, and by the clock there is room for another token.
func (r *register) isPassedOn(p party, since time.Time) bool {
	plan := r.w.plan
	hooks := plan.Clients[p.client].Hooks
	if plan.Backend != "redis" || hooks == "slow" || hooks == "panic" || r.isShort(plan.TTL) || r.dead[p.client] || r.closing[p.client] {
		return false
	}
	before := r.holds[p].Add(-2*longestTTL(plan.TTL) - 2*lingers)
	ahead := func(t touched) bool { // tokens may be ahead of the clock for long
		return t.kind == "break" || t.kind == "clock-back" || t.kind == "clock-on" || t.kind == "suspend" || t.kind == wallOn || kinds[t.kind].data
	}
	return r.wantedAtOnce[p] && time.Since(since) > late && !r.others(p, r.holds[p]) && !r.stuttered(before) &&
		!r.touched(p.client, before, whatever) && !slices.ContainsFunc(r.touches, ahead)
}

// standing are the calls of a client that wait for a lock, nil if one of them, or another that is about it,
// cannot have what a plain one has.
func (r *register) standing(p party) (all []*call) {
	for c := range r.calls {
		if c.client != p.client || c.asks || !slices.Contains(c.names, p.name) {
			continue
		}
		waits := c.plain && c.waits && c.what != "rlock" && len(c.names) == 1 && c.within.find(c.client, p.name, 0) == nil
		if !waits || c.ctx.Err() != nil || c.hurried || !c.start.Before(time.Now().Add(-late)) {
			return nil
		}
		all = append(all, c)
	}
	return all
}

// isPassed checks what a call has cost that has got a lock from its own client.
func (r *register) isPassed(c *call, p *passage, err error) {
	if c.asks || c.what == "unlock" || c.what == "downgrade" {
		return
	}
	for _, n := range c.names {
		at := party{c.client, n}
		pass := r.passings[at]
		if pass == nil || !slices.Contains(pass.next, c) {
			continue
		}
		delete(r.passings, at)
		if err == nil {
			r.isFromItsOwn(c, at, pass.asked, pass.at)
		}
	}
	if at := (party{c.client, c.names[0]}); p != nil && p.joins && err == nil {
		r.isFromItsOwn(c, at, r.asksAbout(at)-p.asks(r, at), c.start)
	}
}

// isFromItsOwn checks that a client has given itself a lock since then, and the server was not asked.
func (r *register) isFromItsOwn(c *call, p party, asked int, since time.Time) {
	if took := time.Since(since); took > late || r.asksAbout(p) > asked {
		r.violate("a hand-over asks nobody", "c%d %s %s has taken %v and %d requests from its own client", c.client, c.what, p.name, took, r.asksAbout(p)-asked)
	}
	r.coverage["passed on × "+c.what]++
}

// asks is how many scripts a client has run about a lock since a call began.
func (p *passage) asks(r *register, at party) (n int) {
	for i, asked := range r.asked {
		if i.client == at.client && i.name == at.name {
			n += asked - p.asked[i]
		}
	}
	return n
}

// joinsOwn reports whether a call is one of a reader beside others of its client.
func (r *register) joinsOwn(c *call) bool {
	p := party{c.client, c.names[0]}
	if !c.plain || c.what != "rlock" && c.what != "tryrlock" || c.within.find(c.client, p.name, 0) != nil || c.hurried {
		return false
	}
	for o := range r.calls {
		if o != c && o.client == c.client && !o.asks && slices.Contains(o.names, p.name) {
			return false
		}
	}
	// A reader joins the hold that its client took last.
	if slices.ContainsFunc(r.beliefs, func(b *belief) bool { return b.client == c.client && b.name == p.name && b.live() && !b.plain }) {
		return false
	}
	return slices.ContainsFunc(r.beliefs, func(b *belief) bool {
		return b.client == c.client && b.name == p.name && b.shared && b.plain && !b.multi && b.parent == nil && b.live() && b.lowering == 0 && (!b.downFrom || !b.lowered.IsZero()) && r.isPassedOn(p, b.granted)
	})
}

// hearsWanted notes whether the client of a new hold hears at once of those who want the lock: it listens, and
// knew that as it asked. If not it passes the hold on for 10 ms alone, nor where it was let in ahead of others in
// the queue: a reader is told so of those, too, that are let in with it.
func (r *register) hearsWanted(s *server, p party, id string, queue []string) {
	l, channel := r.listener(p), "dlock:c:"
	if s.node != nil {
		channel = lockKey(p.name) + ":c:"
	}
	since, listens := r.listens[l]
	switch {
	case len(s.topics[channel+clientOf(id)]) == 0:
		delete(r.listens, l)
	case !listens:
		r.listens[l] = time.Now()
	}
	beside := len(queue) > 1 && slices.Contains(queue, id)
	r.wantedAtOnce[p] = listens && time.Since(since) > 10*r.w.plan.trip() && !beside
}
