package simulation

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
)

// Who is next has the lock at once when Break has ended the hold before: the same script lets it in, and a
// message tells it.

// breaker is how the script begins that takes a lock away.
const breaker = "-- Takes a lock away from who holds it under a token"

// letsNext takes what has become of a lock that somebody has taken away at a server.
func (r *register) letsNext(s *server, name string, old, t truth) {
	if !t.scripted || !r.measures(s, name) {
		return
	}
	live := t.asOf(s.clock().UnixMilli())
	for _, id := range old.holders() {
		if !slices.Contains(live.holders(), id) { // it was taken away once more, or given back
			delete(r.turns, party{r.w.indexOf(s.owner(id)), name})
		}
	}
	if !strings.HasPrefix(r.run[s.index], breaker) {
		return
	}
	// Where somebody else has one of the keys of the lock, no script can read who is next.
	if !live.held() && len(t.queue) > 0 && !r.isForeign() && !r.takesOff(old, t) {
		r.violate("who is next has it after a break", "nobody has %s, and %v waits", name, s.owner(t.queue[0]))
	}
	for _, id := range live.holders() {
		if i := r.w.indexOf(s.owner(id)); i >= 0 && slices.Contains(old.queue, id) {
			r.turns[party{i, name}] = time.Now()
		}
	}
}

// isForeign reports whether somebody else has, or had a moment ago, a key of a lock.
func (r *register) isForeign() bool {
	return slices.ContainsFunc(r.touches, func(t touched) bool { return t.kind == "foreign" && t.to.After(time.Now().Add(-lingers)) })
}

// knowsTurn checks how soon a client knows that it was next. Whoever takes several locks at once has waited
// for the others meanwhile.
func (r *register) knowsTurn(c *call) {
	p := party{c.client, c.names[0]}
	turn, found := r.turns[p]
	r.leavesTurns(c)
	if !found || !c.hasTurn() {
		return
	}
	turn = later(turn, c.start)
	if took := time.Since(turn); took > r.w.plan.message() && r.isUndisturbed(c, turn) {
		r.violate("who is next has it after a break", "c%d %s %s has it %v after a break", c.client, c.what, p.name, took)
	}
}

// leavesTurns forgets that a client was next where the call is over that had waited for that: what it has got
// then belongs to whoever waits behind it.
func (r *register) leavesTurns(c *call) {
	for _, n := range c.names {
		delete(r.turns, party{c.client, n})
	}
}

// awaitTurns looks for those who do not know that they were next.
func (r *register) awaitTurns() {
	for p, turn := range r.turns {
		if time.Since(turn) <= r.w.plan.message() {
			continue
		}
		delete(r.turns, p)
		for c := range r.calls {
			if c.client == p.client && slices.Equal(c.names, []string{p.name}) && c.waits && c.start.Before(turn) && c.hasTurn() && r.isUndisturbed(c, turn) {
				r.violate("who is next has it after a break", "c%d %s %s does not know it %v after a break", c.client, c.what, p.name, time.Since(turn))
			}
		}
	}
}

// hasTurn reports whether a call takes one lock for itself.
func (c *call) hasTurn() bool { return len(c.names) == 1 && !c.asks && !c.nested && c.what != "lead" }

// message is how long the word of a grant takes, and who has had it to confirm that.
func (p *Plan) message() time.Duration { return 6*p.slowest() + 50*time.Millisecond }

// isUndisturbed reports whether nothing has gone wrong for a client since then, or before it for as long
// as that may have had an effect, but that a lock was taken away. A subscription that became mute while
// nobody waited may be missed at any time later.
func (r *register) isUndisturbed(c *call, since time.Time) bool {
	p := r.w.plan.Clients[c.client]
	if r.mutes(c.client) || !r.w.plan.listens(c.client) || p.Hooks == "slow" || p.Hooks == "panic" || p.Own != nil || c.ctx.Err() != nil || r.stuttered(c.start) || r.dead[c.client] || r.closing[c.client] {
		return false
	}
	before := since.Add(-2*longestTTL(r.w.plan.TTL) - 2*lingers)
	others := func(o *call) bool { return o != c && o.client == c.client && slices.Contains(o.names, c.names[0]) }
	for o := range r.calls {
		if others(o) {
			return false
		}
	}
	return !slices.ContainsFunc(r.touches, func(t touched) bool { return t.kind != "break" && t.to.After(before) })
}

// deniesHold checks that a Break of one server that says that there is no such hold is right. None is known
// by token 0, which readers have whose key somebody else, or nobody, has.
func (r *register) deniesHold(c *call, token uint64, err error) {
	if !errors.Is(err, dlock.ErrNotHeld) || token == 0 || !r.sees(c) {
		return
	}
	all := r.during(c.names[0], c.start)
	for _, id := range all[0].holders() {
		if !slices.ContainsFunc(all, func(p period) bool { return !p.isBroken(id, token) }) {
			r.violate("a break names its hold", "c%d broke %s under token %d: %v, and %s has had it all the time", c.client, c.names[0], token, err, id[:8])
		}
	}
}

// isBroken reports whether a hold was there for all of a period under a token by which it can be broken.
func (p *period) isBroken(id string, token uint64) bool {
	if id == p.holder {
		return p.expiry > p.to+moment && uint64(p.token) <= token && p.passesOn(token)
	}
	known := uint64(p.token)
	if own, found := p.own[strings.TrimSuffix(id, "!")]; found {
		known = uint64(own)
	}
	return p.readers[id] > p.to+moment && known == token
}

// passesOn reports whether a client may have passed its hold on under that token.
func (p *period) passesOn(token uint64) bool {
	return token >= uint64(p.token) && token <= max(uint64(p.token), uint64(p.expiry)*1000-1)
}

// asked has a client of a part of the plans with one server look at locks, and take them away.
func (g *generator) asked() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 89))}
	p := g.plan
	if p.Backend != "redis" || !g.often(20) {
		return
	}
	calls := pick(g.draw, []string{"inspect"}, []string{"inspect", "inspect", "break"}, []string{"break"})
	p.Clients = append(p.Clients, g.busyWith(func() Op {
		return Op{Pause: g.within(0, 3*time.Second), Call: pick(g.draw, calls...), Names: []int{g.IntN(p.Names)}}
	}))
}

// saidTokens has holds be broken by the tokens that leases say: a client passes its hold on under others
// than the server knows.
func (g *generator) saidTokens() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 88))}
	if g.plan.Backend != "redis" {
		return
	}
	g.each(func(op *Op) { op.Said = op.Call == "break" && g.often(50) })
}

// said is the token of a lease on a lock that is alive, and that which a server knows if there is none.
func (r *register) said(name string, known uint64) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.beliefs {
		if b.name == name && b.live() {
			known = max(known, b.token)
		}
	}
	return known
}
