package simulation

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// What a client may do with a lock that others wait for: pass it on within itself.
const (
	handOvers    = 16
	handOverTime = 10 * time.Millisecond
)

// A tenure is what a client has of a lock: its newest hold.
type tenure struct {
	known  time.Time // when its client had a lease on it first
	heard  time.Time // when it had one on a fresh hold
	wanted time.Time // since when another client has waited for it; zero: none waits
	fresh  int       // holds that no lease is known on yet
	uses   int       // leases on it since the client must know that
	busy   time.Time // when something else of its client was last about the lock
}

// measures reports whether a server alone decides who is next at a lock.
func (r *register) measures(s *server, name string) bool {
	return r.w.plan.Backend == "redis" && s == r.w.keeper(name)
}

// follow takes a change of the state of a lock: who has come to hold it, and ahead of whom.
func (r *register) follow(s *server, name string, old, t truth) {
	if !r.measures(s, name) {
		return
	}
	now := time.Now()
	for _, id := range t.holders() {
		if had(old, id) {
			continue
		}
		client := r.w.indexOf(s.owner(id))
		if client < 0 {
			continue
		}
		p, fresh := party{client, name}, 1
		if tn := r.tenures[p]; tn != nil {
			fresh += tn.fresh
		}
		r.tenures[p] = &tenure{known: now, fresh: fresh}
		ahead := old.queue
		if i := slices.Index(ahead, id); i >= 0 {
			ahead = ahead[:i]
		}
		queued := r.lock(name).queued
		first, waited := queued[requestOf(id)]
		for _, o := range ahead {
			if waited && first.Before(queued[requestOf(o)]) {
				continue
			}
			if slices.Contains(t.queue, o) && !r.disorders(client) {
				r.violate("first come, first served", "%s has %s before %s, who queued first", s.owner(id), name, s.owner(o))
			}
		}
	}
	for p, tn := range r.tenures {
		if p.name != name {
			continue
		}
		wanted := slices.ContainsFunc(t.queue, func(id string) bool { return s.owner(id) != r.w.label(p.client) })
		switch {
		case !wanted:
			tn.wanted, tn.uses = time.Time{}, 0
		case tn.wanted.IsZero():
			tn.wanted = now
		}
	}
}

// losesTrack forgets who holds a lock that somebody else has had the key of: its queue says nothing for a time.
func (r *register) losesTrack(name string) {
	maps.DeleteFunc(r.tenures, func(p party, _ *tenure) bool { return p.name == name })
}

// had reports whether an id held a lock, or the hold that it goes on with did.
func had(t truth, id string) bool {
	return slices.ContainsFunc(t.holders(), func(o string) bool { return o == id || o+"!" == id })
}

// orderly are faults by which no server loses a queue, nor the time by which that is ordered: a
// connection or its messages are gone, or scripts, or another server has all that there was.
var orderly = []string{"reset", "half-dead", "deaf", "mute", "flush-scripts", "failover"}

// disorders reports whether a client may have come into a queue at another place than it had,
// or others may have. What costs no queue matters for as long as it has an effect, and all
// else for as long as who was in a queue may come back to it.
func (r *register) disorders(client int) bool {
	now := time.Now()
	return slices.ContainsFunc(r.touches, func(t touched) bool {
		since := now.Add(-5 * lingers)
		if slices.Contains(orderly, t.kind) {
			since = now.Add(-lingers)
		}
		return (t.client < 0 || t.client == client) && t.to.After(since)
	})
}

// passed checks that a lease on a hold that its client had already does not keep others
// waiting for longer than a client may.
func (r *register) passed(c *call, b *belief) {
	tn := r.tenures[party{b.client, b.name}]
	if tn == nil || b.parent != nil {
		return
	}
	// A lease that took no time, or came with another, is one on a hold that is known.
	now := time.Now()
	if tn.fresh > 0 && c.start.Before(now) && tn.heard != now {
		tn.fresh--
		tn.known, tn.heard = now, now
		return
	}
	if tn.wanted.IsZero() || len(c.names) > 1 || r.w.plan.Clients[b.client].Hooks == "panic" || r.touched(b.client, time.Now().Add(-5*lingers), whatever) {
		return
	}
	known := later(tn.wanted, tn.known)
	if !r.w.plan.Clients[b.client].Poll {
		known = known.Add(4 * r.w.plan.slowest()) // a message tells, where the server sends any, or the grant itself
	}
	if r.hasOtherNode(tn.known) {
		known = known.Add(longestTTL(r.w.plan.TTL) / 3) // or a renewal: the subscription is on the node of before
	}
	over := time.Since(known)
	if over <= 0 {
		return
	}
	tn.uses++
	if r.w.plan.Clients[b.client].Hooks == "slow" {
		over -= 10 * hookTime
	}
	if over > handOverTime+late || tn.uses > handOvers {
		r.violate("nobody is passed by", "%v: others have waited for %v, and %d were let in before them", b, time.Since(tn.wanted), tn.uses)
	}
}

// panicked notes that a client knows a hold of which nobody has a lease, as the hook that was
// told of that panicked, and none before.
func (r *register) panicked(c *call, err error) {
	if err != errPanicked || !r.w.clients[c.client].hooks.hasJustGot(c.names) {
		return
	}
	for _, name := range c.names {
		if tn := r.tenures[party{c.client, name}]; tn != nil && tn.fresh > 0 {
			tn.fresh--
			tn.known, tn.heard = time.Now(), time.Now()
		}
	}
}

// overtakes checks that the goroutines of one client get a lock in the order in which they
// have come for it.
func (r *register) overtakes(c *call) {
	if len(c.names) > 1 || c.nested || r.stuttered(c.start) {
		return
	}
	slack := late
	if r.w.plan.Clients[c.client].Hooks == "slow" {
		slack += 2 * hookTime // in one, a call has not come yet
	}
	for o := range r.calls {
		if strings.HasSuffix(o.what, "rlock") && strings.HasSuffix(c.what, "rlock") {
			continue // side by side
		}
		first := o.client == c.client && o.waits && !o.nested && len(o.names) == 1 && o.names[0] == c.names[0]
		isBroken := r.hasBroken(o.start) || r.isNamed(o, c.names[0]) // before it has returned, or it gets what belongs to another
		waits := o.ctx.Err() == nil && (o.patient.IsZero() || time.Now().Before(o.patient))
		if first && !isBroken && !o.counted && !o.heldUp && waits && o.start.Add(slack).Before(c.start) {
			o.counted = true
			r.violate("first come, first served", "c%d %s has %s, which it asked for %v after %s", c.client, c.what, c.names[0], c.start.Sub(o.start), o.what)
		}
	}
}

// hasOtherNode reports whether the node that has a lock in a cluster may be another one since then.
func (r *register) hasOtherNode(since time.Time) bool {
	return slices.ContainsFunc(r.touches, func(t touched) bool { return slices.Contains(moving, t.kind) && t.to.After(since) })
}

// moving are the faults after which another node of a cluster has a lock.
var moving = []string{"failover", "takeover", "promotion", "slot-move"}

// hears checks that whoever waits hears that the server has given it the lock.
func (r *register) hears(s *server, name string, t truth) {
	if !r.measures(s, name) {
		return
	}
	for c := range r.calls {
		tn := r.tenures[party{c.client, name}]
		if tn == nil || tn.fresh == 0 || !c.waits || c.counted || c.nested || len(c.names) > 1 || c.names[0] != name || r.dead[c.client] {
			continue
		}
		label := r.w.label(c.client)
		holds, asked := false, c.start // a call that waits for its own client asks no server
		for _, id := range t.holders() {
			if s.owner(id) == label && id[len(id)-1] != '!' {
				holds, asked = true, later(asked, r.lock(name).queued[requestOf(id)])
			}
		}
		others := slices.ContainsFunc(r.beliefs, func(b *belief) bool { return b.client == c.client && b.name == name })
		for o := range r.calls {
			others = others || o != c && o.client == c.client && slices.Contains(o.names, name)
		}
		if others {
			tn.busy = time.Now()
		}
		since := later(later(c.start, tn.known), later(tn.busy, r.gave[party{c.client, name}]))
		if holds && time.Since(since) > prompt && r.calm(since) && !r.isNews(c, asked, since) {
			c.counted = true
			r.violate("a grant is heard of", "c%d waits for %s, which it has had for %v", c.client, name, time.Since(since))
		}
	}
}

// calm reports whether nothing had gone wrong for some time that could keep anybody
// waiting, but for a mute subscription.
func (r *register) calm(since time.Time) bool {
	before := since.Add(-2*r.w.plan.TTL - 2*lingers)
	return !slices.ContainsFunc(r.touches, func(t touched) bool {
		return t.kind == "clock-back" || t.kind != "mute" && t.to.After(before)
	})
}

// isNews reports whether a client may not know yet that its subscription is mute. It finds
// out as it waits at a server for long, or as it misses the word of a grant. In a cluster a node
// of Redis 6.2 that takes over can tell nobody, nor that nobody listens: the subscription lives on
// at the node before, and who waits finds out by the latter alone.
func (r *register) isNews(c *call, asked, since time.Time) bool {
	for _, t := range r.touches {
		untold := r.w.plan.Cluster && len(r.w.plan.Old) > 0 && slices.Contains(moving, t.kind)
		if !untold && (t.kind != "mute" || t.client >= 0 && t.client != c.client) {
			continue
		}
		missed, found := r.missed[c.client]
		if !found || missed.Before(t.from) {
			r.missed[c.client] = time.Now()
			missed = time.Now()
		}
		if (untold || since.Before(later(t.from, asked).Add(noticed))) && since.Before(missed.Add(lingers)) {
			return true
		}
	}
	return false
}

// mutes reports whether the subscription of a client has ever been mute.
func (r *register) mutes(client int) bool {
	return slices.ContainsFunc(r.touches, func(t touched) bool {
		return t.kind == "mute" && (t.client < 0 || t.client == client)
	})
}

// hearsNothing reports whether messages to a client have been lost since then.
func (r *register) hearsNothing(client int, since time.Time) bool {
	return slices.ContainsFunc(r.touches, func(t touched) bool {
		return t.kind == "deaf" && (t.client < 0 || t.client == client) && t.to.After(since)
	})
}

// An account is what a client has asked the server for, and what it may have.
type account struct {
	since  time.Time
	asked  float64
	credit float64
}

// requests is how many a call may cost on each lock, with what follows its lease.
const requests = 6

// before is how many may still come of what has ended.
const before = 60

// counts takes a request of a client.
func (r *register) counts(client string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.accounts[r.w.plan.hostOf(r.w.indexOf(client))]; a != nil {
		a.asked++
	}
}

// affords gives a client more to ask for.
func (r *register) affords(client int, n float64) {
	if a := r.accounts[r.w.plan.hostOf(client)]; a != nil {
		a.credit += n
	}
}

// audit checks that nobody asks for more than calls, leases and waits cost, where nothing
// goes wrong.
func (r *register) audit(passed time.Duration) {
	if r.w.plan.Backend != "redis" {
		return
	}
	least := r.least.Seconds()
	since := r.audited // nobody looks while nothing is held or asked for, and what is over is given back then
	r.audited = time.Now()
	for i := range r.w.plan.Clients {
		a := r.accounts[i]
		busy := r.touched(i, since.Add(-settles), whatever) || r.touched(i, since.Add(-settles-asks), splits)
		if a == nil || !r.w.plan.listens(i) || busy {
			r.accounts[i] = &account{since: time.Now(), credit: before}
			continue
		}
		for _, b := range r.beliefs {
			if r.w.plan.hostOf(b.client) == i {
				a.credit += passed.Seconds() * 6 / min(least, b.ttl.Seconds())
			}
		}
		if least <= grantTime.Seconds() { // whoever lets go looks after each hold that is as short as a grant
			a.credit += passed.Seconds() * float64(r.w.plan.Names) / least
		}
		for c := range r.calls {
			if r.w.plan.hostOf(c.client) == i {
				a.credit += passed.Seconds() * float64(len(c.names)) * (0.4 + 2/least)
			}
		}
		if a.asked > a.credit {
			r.violate("requests are few", "c%d has asked %.0f times in %v, and may %.0f times", i, a.asked, time.Since(a.since), a.credit)
			r.accounts[i] = nil
		}
	}
}

// grantTime is for how long a lock is granted to who waits, before it confirms that.
const grantTime = 5 * time.Second

// How long after a fault a client may be busy with it, and how much longer it asks in
// place of waiting for messages that have gone to another server than its requests.
const (
	settles = 12 * time.Second
	asks    = 30 * time.Second
)

func splits(t touch) bool { return t.splits || t.polls }

// leastTTL is the shortest of a plan.
func (p *Plan) leastTTL() time.Duration {
	least := p.TTL
	var look func(ops []Op)
	look = func(ops []Op) {
		for _, op := range ops {
			for _, d := range []time.Duration{op.TTL, op.MaxHold} {
				if d > 0 {
					least = min(least, d)
				}
			}
			look(op.Inside)
		}
	}
	for _, c := range p.Clients {
		for _, ops := range c.Workers {
			look(ops)
		}
	}
	return least
}
