package simulation

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

// needs has a hold on a part of the quorums take all servers, or four of five.
func (g *generator) needs() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 61))}
	if p := g.plan; p.Backend == "quorum" && g.often(15) {
		p.Need = p.Servers
		if p.Servers == 5 && g.often(50) {
			p.Need = 4
		}
	}
}

// need is how many servers a hold takes.
func (p *Plan) need() int { return cmp.Or(p.Need, p.Servers/2+1) }

// spare is how many servers a hold can do without.
func (p *Plan) spare() int { return p.Servers - p.need() }

// needsAll reports whether a hold takes all servers of a quorum. One of them that has lost its data
// votes at once: the others keep out whom they do not know.
func (p *Plan) needsAll() bool { return p.Backend == "quorum" && p.spare() == 0 }

// waitsToVote reports whether a server that may have forgotten holds takes no part for some time.
func (p *Plan) waitsToVote() bool { return p.Backend == "quorum" && !p.needsAll() }

// mostForgot reports whether so many servers may have forgotten what they had, and somebody may still
// believe in that, that none is left which knows of both of two holds. Who has lost its data votes when
// nobody believes in that any more, unless all are needed, or its clock goes on. Break ends a hold
// everywhere.
func (r *register) mostForgot() bool {
	p, then, forgot := r.w.plan, time.Now().Add(-3*r.w.plan.TTL-lingers), make(map[int]bool)
	for _, t := range r.touches {
		switch {
		case !kinds[t.kind].data || !t.to.After(then):
		case t.kind == "break":
			return true
		case t.kind == "clock-on" || p.needsAll():
			forgot[t.server] = true
		}
	}
	return len(forgot) >= 2*p.need()-p.Servers
}

// tokensMayFall reports whether a server that takes its tokens from its clock, for want of what it knew,
// may take lesser ones: Break raises tokens above the clock, or that was set back.
func (r *register) tokensMayFall() bool {
	if !r.w.plan.needsAll() || r.w.steppedBack() == 0 && !slices.ContainsFunc(r.touches, isBreak) {
		return false
	}
	return slices.ContainsFunc(r.touches, func(t touched) bool { return kinds[t.kind].data && !isBreak(t) })
}

// taking is how long it takes at most to connect and to take a lock: where all servers are needed, at one
// after the other. On a quorum one that is late is waited for a little.
func (p *Plan) taking() time.Duration {
	trips := 3
	if p.needsAll() {
		trips += p.Servers
	}
	margin := time.Duration(0)
	if p.Backend == "quorum" {
		margin = 50 * time.Millisecond
	}
	return margin + time.Duration(2*trips)*p.slowest()
}

// leaseOf is how long a lease of a call lasts that is not renewed.
func (p *Plan) leaseOf(op *Op) time.Duration {
	ttl := cmp.Or(op.TTL, p.TTL)
	if op.MaxHold > 0 {
		ttl = min(ttl, op.MaxHold)
	}
	return ttl
}
