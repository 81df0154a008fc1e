package simulation

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// A period is what a server had of a lock for some time.
type period struct {
	truth
	from, to int64 // ms, by its clock
}

// during is what the server had of a lock from since on, and for as long before as a replica is
// behind: a connection from before a promotion may be one to the replica that its master has
// become.
func (r *register) during(name string, since time.Time) (all []period) {
	if r.w.plan.Replica {
		since = since.Add(-r.w.plan.Lag)
	}
	end := r.w.keeper(name).clock().UnixMilli()
	states := r.lock(name).states
	for i := len(states) - 1; i >= 0; i-- {
		from := end - time.Since(states[i].at).Milliseconds()
		if i+1 < len(states) {
			all = append(all, period{states[i], from, all[len(all)-1].from})
		} else {
			all = append(all, period{states[i], from, end})
		}
		if states[i].at.Before(since) {
			return all
		}
	}
	return append(all, period{from: 0, to: 0}) // nobody had ever wanted it
}

// moment is by how many ms a server and who looks at it may differ about when a lease ends.
const moment = 5

func (p *period) everHeld() bool   { return p.asOf(p.from - moment).held() }
func (p *period) alwaysHeld() bool { return p.asOf(p.to + moment).held() }

// sees reports whether an answer to a question shows what the server had: nothing has gone
// wrong that could keep an answer, or the server, from being the one that counts, and nobody has made
// the keys of the lock what the library does not.
func (r *register) sees(c *call) bool {
	harmless := []string{"break", "forge", "deaf", "mute", "flush", "evict", "by-hand", "swap", "flush-scripts"}
	isByHand := func(name string) bool { return r.isByHand(name, c.start) }
	return r.w.plan.Backend == "redis" && !slices.ContainsFunc(c.names, isByHand) && !slices.ContainsFunc(r.touches, func(t touched) bool {
		return t.to.After(c.start.Add(-lingers)) && !slices.Contains(harmless, t.kind)
	})
}

// shown checks what Inspect says.
func (r *register) shown(c *call, s dlock.Snapshot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range s.Holders {
		if h.Mode == backend.Exclusive && len(s.Holders) > 1 && r.w.plan.Backend != "quorum" {
			r.violate("a snapshot is one", "c%d inspect %v: %+v", c.client, c.names, s.Holders)
		}
	}
	if r.sees(c) || !r.w.hasServers() {
		r.labelled(c, s)
	}
	r.showsBeliever(c, s)
	if r.w.plan.Backend == "quorum" {
		r.shownByQuorum(c, s)
	}
	if !r.sees(c) {
		return
	}
	ever, always := false, true
	periods := r.during(c.names[0], c.start)
	for _, p := range periods {
		ever, always = ever || p.everHeld(), always && p.alwaysHeld()
	}
	switch held := len(s.Holders) > 0; {
	case held && !ever, !held && always, len(s.Waiters) > r.mostQueued(periods):
		r.violate("a question is answered truly", "c%d inspect %v: %+v", c.client, c.names, s)
	}
	r.showsAsItIs(c, s)
}

// listed checks what Names says.
// It was asked for those that begin with begin.
func (r *register) listed(c *call, begin string, names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.w.plan.Backend == "quorum" {
		r.listedByQuorum(c, begin, names)
	}
	if !r.sees(c) {
		return
	}
	for _, name := range names {
		if !slices.Contains(r.w.names(), name) || !strings.HasPrefix(name, begin) {
			r.violate("a question is answered truly", "c%d names: %q, which is none of those that begin with %q", c.client, name, begin)
		}
	}
	for _, name := range r.w.names() {
		if !r.listable(c, name, begin) {
			continue
		}
		ever, always := false, true
		for _, p := range r.during(name, c.start) {
			ever, always = ever || p.everHeld() || len(p.queue) > 0, always && p.alwaysHeld()
		}
		if named := slices.Contains(names, name); named && !ever || !named && always && !r.mayLackKey(c) {
			r.violate("a question is answered truly", "c%d names: %v, and %s", c.client, names, name)
		}
	}
}

// listable reports whether a client can be told of a name: what is its prefix alone is no name to it.
func (r *register) listable(c *call, name, begin string) bool {
	return strings.HasPrefix(name, begin) && len(name) > len(r.w.plan.Clients[c.client].Prefix)
}

// mayLackKey reports whether a lock may have no key of its own name: readers stand in another
// one, and bring back the first with their next renewal.
func (r *register) mayLackKey(c *call) bool {
	return slices.ContainsFunc(r.touches, func(t touched) bool {
		return (t.kind == "evict" || t.kind == "by-hand") && t.to.After(c.start.Add(-lingers-2*r.w.plan.TTL))
	})
}

// broken checks that Break has ended the hold that it names, and no other. A request that met a
// broken connection is sent again, and may have been the one that ended the hold: so an
// answer to it says nothing. Connections may break long before anybody sends by them.
func (r *register) broken(c *call, token uint64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.w.plan.Backend == "quorum" {
		r.brokenOnQuorum(c, token, err)
	}
	r.deniesHold(c, token, err)
	breaks := func(t touch) bool { return t.fails }
	if err != nil || !r.sees(c) || r.w.plan.Ends > 0 || r.touched(c.client, time.Time{}, breaks) || r.tokensFell(c) {
		return
	}
	name := c.names[0]
	named := func(p period) bool {
		return p.everHeld() && (p.holder == "" || uint64(p.token) == token || r.lock(name).tokens[token] && p.passesOn(token))
	}
	if !slices.ContainsFunc(r.during(name, c.start), named) {
		r.violate("a break names its hold", "c%d broke %s under token %d, which nobody had it under", c.client, name, token)
	}
	for _, b := range r.beliefs {
		if b.name == name && b.token == token && !b.shared && !b.limited {
			b.broken = c.start
		}
	}
}

// tokensFell reports whether the token of a hold may lie among those that a later hold could be
// handed on under: a Break has raised it above the clock, and the server has lost its data since.
func (r *register) tokensFell(c *call) bool {
	raised := slices.ContainsFunc(r.touches, func(t touched) bool { return t.kind == "break" && t.from.Before(c.start) })
	return raised && r.anyDataLost()
}

// saysWhy checks that who has lost a lock by Break hears of that as it renews. An Unlock, or
// an entry, that hears of the loss first is told no more than that.
func (r *register) saysWhy(b *belief, err error) {
	fails := func(t touch) bool { return t.loses && !t.data || t.fails }
	if b.broken.IsZero() || !errors.Is(err, dlock.ErrLost) || errors.Is(err, dlock.ErrBroken) || r.touched(b.client, b.granted.Add(-lingers), fails) {
		return
	}
	asked := func(name string) bool { return !r.used[party{b.client, name}].Before(b.broken.Add(-firstAnswer)) }
	if !slices.ContainsFunc(r.namesOf(b.lease), asked) {
		r.violate("a break is heard of", "%v: %v", b, err)
	}
}
