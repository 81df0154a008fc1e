package simulation

import (
	"math/rand/v2"
	"slices"
	"time"
)

// A fault that is over long before a lease would be is no excuse for its loss: a renewal that fails is
// made again.

// recovers is for how long a fault that is over may keep renewals from being answered: a connection is
// found to be broken, another one is made, and it is time for another attempt.
const recovers = 2 * time.Second

// whateverItsLength are the kinds of fault that may cost a lease by what they do, and not by how long they
// last, beside those after which a server has other data.
var whateverItsLength = []string{
	"die", "kill-client", // of whom nothing is left
	"stutter",   // any goroutine is stopped, again and again
	"nudge-far", // a clock is set by more than is allowed for
}

// mayHaveCost reports whether what a client has met since then may have cost it a lease of that length.
func (r *register) mayHaveCost(client int, since time.Time, ttl time.Duration) bool {
	return r.touched(client, since, r.costs(ttl)) && !r.outlasts(client, since, ttl)
}

// outlasts reports whether all that a client has met since then was, one after the other, shorter than
// a third of a lease: a hold is renewed with two thirds left, so that half of the time for more attempts
// is without any trouble.
func (r *register) outlasts(client int, since time.Time, ttl time.Duration) bool {
	costs, sum := r.costs(ttl), time.Duration(0)
	for _, t := range r.touches {
		does := kinds[t.kind]
		switch {
		case t.client >= 0 && t.client != client, !t.to.After(since), !costs(does) && !does.fails:
			continue
		case does.data && costs(does), slices.Contains(whateverItsLength, t.kind):
			return false
		}
		sum += t.to.Sub(t.from) + recovers
	}
	return sum < ttl/3
}

// shortFaults has a part of the plans with leases of ten seconds or more have locks be held for many of
// them, and faults that last for less than one, so that renewals fall into them; they are so far apart that
// each has been forgotten before the next begins.
func (g *generator) shortFaults() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 165))}
	p := g.plan
	if p.TTL < 10*time.Second || p.Shelves || len(p.Faults) == 0 || !g.often(25) {
		return
	}
	some := g.Perm(len(shortKinds))[:1+g.IntN(3)]
	place := pick(g.draw, p.Faults...).Server
	p.Faults = nil
	longest := p.TTL/3 - recovers - time.Second
	for at := g.within(0, p.TTL); at < p.Length; at += g.within(2*p.TTL+2*lingers, 4*p.TTL) {
		f := Fault{Kind: shortKinds[pick(g.draw, some...)], At: at, Client: -1, Server: place, Way: pick(g.draw, 2, 2, g.IntN(3))}
		if !slices.Contains(networks, f.Kind) {
			f.Server = max(place, 0)
		}
		f.For = pick(g.draw, g.within(0, min(longest, 100*time.Millisecond)), g.within(longest/2, longest), longest)
		if f.Kind == "delay" {
			f.Size, f.For = f.For/2, f.For/2
		}
		p.Faults = append(p.Faults, f)
	}
	g.each(func(op *Op) {
		if g.often(40) {
			op.Hold += g.within(0, 5*p.TTL)
		}
	})
}

// shortKinds are the kinds of fault that cost a lease by how long they last.
var shortKinds = []string{
	"pause", "restart", "loading", "busy", "readonly", "misconf", "noperm", "pause-writes", "no-replicas", "cut",
	"hole", "hole-reset", "half-open", "delay", "slow", "stall-requests",
}
