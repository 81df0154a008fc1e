package simulation

import (
	"slices"
	"time"
)

// tick is how often all that is promised is looked at when nothing happens: less often in a
// plan that lasts longer, and each 80 ms in most.
func (p *Plan) tick() time.Duration {
	return max(leastTick, p.Length/3000)
}

const leastTick = 80 * time.Millisecond

// watch checks again and again what no call could notice.
func (r *register) watch(done <-chan struct{}) {
	t := time.NewTicker(r.tick)
	defer t.Stop()
	for {
		select {
		case <-done:
			return
		case <-t.C:
			r.look()
		}
	}
}

func (r *register) look() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bears(r.tick)
	if len(r.beliefs) == 0 && len(r.calls) == 0 && r.quiet() {
		return
	}
	for _, b := range r.beliefs {
		r.see(b.client, []string{b.name})
		if r.dead[b.client] || r.isStill(b.client) {
			continue
		}
		if b.lease.Err() != nil {
			r.told(b)
			r.lostTrue(b)
			continue
		}
		if !b.ended.IsZero() {
			r.violate("an end is an end", "%v is alive again", b)
		}
		if over := time.Since(b.until); b.limited && over > late {
			r.violate("a limit is kept", "%v should have ended %v ago", b, over)
		}
		r.alone(b)
		r.backed(b)
		r.untilTrue(b)
		r.wanted(b)
		r.outlivesBreak(b)
	}
	for c := range r.calls {
		r.see(c.client, c.names)
		if !r.dead[c.client] {
			r.inTime(c)
		}
	}
	for _, name := range r.w.names() {
		r.moves(name)
	}
	r.awaitTurns()
	r.audit(r.tick)
}

// quiet reports whether no server has anything of a lock.
func (r *register) quiet() bool {
	for _, l := range r.locks {
		for _, t := range l.last {
			if t.holder != "" || len(t.readers) > 0 || len(t.queue) > 0 {
				return false
			}
		}
	}
	return true
}

// told checks that the context of a lease that is over is done.
func (r *register) told(b *belief) {
	if !b.ended.IsZero() && time.Since(b.ended) > late && b.ctx.Err() == nil && !r.stuttered(b.ended) && !r.stood(b.client, b.ended) {
		r.violate("contexts end", "%v ended %v ago", b, time.Since(b.ended))
	}
}

// What the protocol allows a lock to stay free for that somebody waits for: twice the
// time of a grant that nobody confirms, and the interval of slow questions. Where
// nothing goes wrong a message brings it at once.
const (
	slowest = 2*5*time.Second + asked + time.Second
	asked   = 6 * time.Second
	prompt  = 2500 * time.Millisecond
)

// moves checks that a free lock finds who waits for it, and that nothing is left of
// those who have gone.
func (r *register) moves(name string) {
	if r.w.plan.Servers != 1 || len(r.w.masters()) == 0 {
		r.movesOnQuorum(name)
		r.leftOnQuorum(name)
		return
	}
	s, l, now := r.w.keeper(name), r.lock(name), time.Now()
	if len(l.states) == 0 {
		return
	}
	t := l.states[len(l.states)-1].asOf(s.clock().UnixMilli())
	if r.isStrange(name, now.Add(-slowest)) { // who asks is told, and who has it may lose it
		l.lastHeld = now
		return
	}
	if t.held() {
		l.lastHeld = now
		r.leftovers(s, name, t)
		r.hears(s, name, t)
		r.joins(name, t)
		return
	}
	for c := range r.calls {
		if !c.waits || c.nested || len(c.names) > 1 || c.names[0] != name || r.dead[c.client] {
			continue
		}
		if r.ownHas(c, name) { // as far as it knows: of a fixed hold no renewal says that Break has ended it
			c.behind = now
		}
		bound := prompt + r.tick - leastTick // it may have been held since the last look
		since := later(later(c.start, c.behind), l.lastHeld)
		if !r.calm(since) || r.mutes(c.client) {
			bound = slowest + r.w.steppedBack()
		}
		if now.Sub(since) > bound && !r.touched(c.client, now.Add(-bound), whatever) && !c.counted {
			c.counted = true
			r.violate("a free lock is taken", "c%d %s %s waits for %v, it is free for %v", c.client, c.what, name, now.Sub(c.start), now.Sub(since))
		}
	}
}

// movesOnQuorum checks that a lock that nobody has finds who waits for it, as long as but
// one server gives trouble. Of a client that cannot reach a server which others can the
// part of a hold stays there for a lease.
func (r *register) movesOnQuorum(name string) {
	bound := prompt + 2*r.w.steppedBack()
	if slices.ContainsFunc(r.touches, func(t touched) bool { return t.client >= 0 && t.server != everywhere }) {
		bound += 2 * longestTTL(r.w.plan.TTL)
	}
	l, now := r.lock(name), time.Now()
	past := now.Add(-bound - 2*longestTTL(r.w.plan.TTL) - 2*lingers)
	if !r.outvoted(past) || r.heldUpSince(past) || r.heldByMost(name, l) || r.isObstructed(l) || slices.ContainsFunc(r.beliefs, func(b *belief) bool { return b.name == name }) {
		l.lastHeld = now
		return
	}
	for c := range r.calls {
		if r.isCutOff(c.client, past) || r.isUsedUp(c) {
			continue
		}
		if r.standsBehindVain(c) {
			c.behind = now
		}
		since, bound := later(later(c.start, c.behind), l.lastHeld), bound
		if r.mutes(c.client) || r.hearsNothing(c.client, r.waitsSince(c.client, name)) || r.touched(c.client, since.Add(-asks), polls) {
			bound = max(bound, slowest)
		}
		if r.queueFlushed(c) {
			bound = max(bound, prompt+asked)
		}
		if c.waits && !c.nested && len(c.names) == 1 && c.names[0] == name && !c.counted && !r.dead[c.client] && now.Sub(since) > bound {
			c.counted = true
			r.violate("a free lock is taken", "c%d %s %s waits for %v, no majority holds it for %v", c.client, c.what, name, now.Sub(c.start), now.Sub(since))
		}
	}
}

// waitsSince is since when a client has waited for a lock: calls of it that come later stand behind
// the first, which may have missed its grant.
func (r *register) waitsSince(client int, name string) time.Time {
	first := time.Now()
	for c := range r.calls {
		if c.client == client && c.waits && slices.Contains(c.names, name) && c.start.Before(first) {
			first = c.start
		}
	}
	return first
}

// queueFlushed reports whether a server of a quorum may have forgotten that a call waits there,
// which that learns as it asks again.
func (r *register) queueFlushed(c *call) bool {
	return slices.ContainsFunc(r.touches, func(t touched) bool { return t.quiet && t.from.After(c.start) })
}

// heldByMost reports whether a client has a lock on as many servers as it takes, or what rests of
// a hold of it on one.
func (r *register) heldByMost(name string, l *lockLog) bool {
	count := make(map[string]int)
	if r.w.shelves != nil {
		return r.heldOnShelves(name)
	}
	for _, s := range r.w.masters() {
		t, found := l.last[s.index]
		if !found {
			continue
		}
		for _, id := range t.asOf(s.clock().UnixMilli()).holders() {
			rests := id[len(id)-1] == '!' // by itself, also if another server has forgotten it
			if count[s.owner(id)]++; rests || count[s.owner(id)] >= r.w.plan.need() {
				return true
			}
		}
	}
	return false
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// left is for how long the server may not know that a client has no more to do with a
// lock, where nothing goes wrong, and as long as it takes to make a connection for that.
const left = time.Second

// knowsLess reports whether a server may have forgotten since then that somebody has left its queue.
func (r *register) knowsLess(since time.Time) bool {
	return slices.ContainsFunc(r.touches, func(t touched) bool { return kinds[t.kind].data && t.to.After(since.Add(-lingers)) })
}

// closedUnheard reports whether a server may not have heard that a client which was closed waits no
// longer, as something was wrong then.
func (r *register) closedUnheard(client int) bool {
	k := r.closings[client]
	return k != nil && slices.ContainsFunc(r.touches, func(t touched) bool {
		return (t.client < 0 || t.client == client) && t.from.Before(k.ended.Add(left)) && t.to.After(k.began.Add(-2*r.w.plan.TTL-lingers))
	})
}

func (r *register) leftovers(s *server, name string, t truth) {
	if r.isCopied[name] { // who is there waits for another lock, or has waited before
		return
	}
	for _, id := range append(t.holders(), t.queue...) {
		if id[len(id)-1] == '!' {
			continue // it is meant to end by itself
		}
		owner := s.owner(id)
		for c := range r.w.plan.Clients {
			if owner != r.w.label(c) {
				continue
			}
			since := r.interest[party{c, name}]
			then := since
			if r.closing[c] { // its calls ask nothing
				then = time.Time{}
			}
			if slices.Contains(t.queue, id) && (r.knowsLess(then) || r.closedUnheard(c)) {
				continue // until the lock is given back, or somebody asks for it
			}
			if time.Since(since) > left+r.w.plan.renewing(c)*r.w.plan.slowest() && !r.dead[c] &&
				!r.touched(c, since.Add(-2*r.w.plan.TTL-lingers), whatever) {
				r.interest[party{c, name}] = time.Now()
				r.violate("nothing is left behind", "c%d has had nothing to do with %s for %v: %s", c, name, time.Since(since), id[:8])
			}
		}
	}
}
