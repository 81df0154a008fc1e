package simulation

import (
	"context"
	"slices"
	"time"

	"github.com/dlock-go/dlock"
)

// A demand is what a register knows of who has asked for a lock, and ended.
type demand struct {
	ends int       // how many calls of one client
	last time.Time // when the last of them did
}

// isLock reports whether a call asks for locks.
func (c *call) isLock() bool { return !c.asks && c.what != "unlock" && c.what != "downgrade" }

// demands notes that a call that asks for locks has ended.
func (r *register) demands(c *call) {
	if !c.isLock() {
		return
	}
	for _, n := range c.names {
		d := r.demand[party{c.client, n}]
		r.demand[party{c.client, n}] = demand{d.ends + 1, time.Now()}
	}
}

// demandsOnce is demands for a call that has got leases, which are not told of itself.
func (r *register) demandsOnce(c *call, all []*belief) {
	r.demands(c)
	for _, b := range all {
		b.demand.ends++
		switch {
		case b.multi: // it may have had this lock while it waited for another
			b.sought = c.start
		case b.shared: // what one of several readers is told counts for those who join
			b.sought = b.asked
		}
	}
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// wanted checks what a lease that is alive says of others who wait for its lock.
func (r *register) wanted(b *belief) {
	ch := b.lease.Wanted()
	if ch == nil || b.heard || b.parent != nil {
		return
	}
	names := r.namesOf(b.lease)
	if isClosed(ch) {
		b.heard = true
		if !slices.ContainsFunc(names, func(n string) bool { return r.isWanted(b, n) }) {
			r.violate("Wanted is true", "%v is told that somebody waits, and nobody has", b)
		}
		return
	}
	if b.multi && !b.watched { // a lease on several locks listens to each of them from the first call of Wanted on
		b.watched = true
		return
	}
	if c := r.ignored(b); c != nil {
		b.heard = true
		r.violate("Wanted is told", "%v is not told that c%d has waited for %v", b, c.client, time.Since(c.start))
	}
}

// isWanted reports whether another goroutine of its client may have asked for a lock since b began, or
// another client since its hold began, which is passed on within a client with what is known of others.
// A plan in which something goes wrong may leave places in a queue that nobody has.
func (r *register) isWanted(b *belief, name string) bool {
	if !r.calm(b.asked) || len(r.closing) > 0 {
		return true
	}
	slack := late
	if hooks := r.w.plan.Clients[b.client].Hooks; hooks == "slow" || hooks == "panic" {
		slack = passing
	}
	for p, d := range r.demand {
		switch {
		case p.name != name:
		case p.client == b.client && (d.ends > b.demand.ends || !b.demand.last.Before(b.granted.Add(-slack))):
			return true
		case p.client == b.client && !b.sought.IsZero() && !d.last.Before(b.sought.Add(-slack)):
			return true
		case p.client != b.client && d.last.After(b.asked.Add(-left)):
			return true
		}
	}
	for c := range r.calls {
		if c.isLock() && slices.Contains(c.names, name) {
			return true
		}
	}
	return false
}

// ignored is a call that has waited for the lock of b for so long that b has to know. A message tells,
// or a renewal, where somebody does without messages or has a subscription at a server of before, and in
// a cluster, where who has not waited for a lock has no subscription for it.
func (r *register) ignored(b *belief) *call {
	bound := prompt
	if len(r.touches) > 0 || r.w.plan.Backend == "quorum" || r.w.plan.Cluster || !r.w.plan.listens(b.client) {
		bound += b.ttl
	}
	for c := range r.calls {
		if !c.waits || c.nested || len(c.names) > 1 || c.names[0] != b.name || r.dead[c.client] || c.ctx.Err() != nil || c.hurried {
			continue
		}
		if c.client != b.client && (r.ownHas(c, b.name) || r.standsBehindHurried(c)) { // it stands behind its own client, and no server knows
			c.aside = time.Now()
		}
		if since := later(later(c.start, c.aside), b.granted); time.Since(since) > bound && r.calm(since) && !r.mutes(b.client) {
			return c
		}
	}
	return nil
}

// standsBehindHurried reports whether a call of the client of c came before it, and has no answer that it
// can use: what it asks for ends before it can know that it has it.
func (r *register) standsBehindHurried(c *call) bool {
	for o := range r.calls {
		if o.client == c.client && o.hurried && o.start.Before(c.start) && slices.Contains(o.names, c.names[0]) {
			return true
		}
	}
	return false
}

// staysWanted checks that an end of a lease does not change what it has said.
func (a *actor) staysWanted(lease *dlock.Lease, before bool, all []*belief) {
	if before && !isClosed(lease.Wanted()) {
		a.violate("Wanted is true", "%v was told that somebody waits, and after its end it is not", all[0])
	}
}

// restYielding is rest, and ends when somebody else waits.
func (a *actor) restYielding(ctx context.Context, lease *dlock.Lease, d time.Duration) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-lease.Wanted():
			cancel()
		case <-ctx.Done():
		}
	}()
	_ = a.rest(ctx, d)
}
