package simulation

import (
	"slices"
	"time"
)

// untilTrue checks what a lease that is alive says of its end. Lease.Until is documented as
// the moment at which the lease ends if nothing more is heard of the server, and a lease ends
// before the server gives the lock to somebody else: so it is no moment that has gone by, and
// none at which the server keeps the lock no longer. Whatever excuses a server that does not
// keep what is believed excuses this.
func (r *register) untilTrue(b *belief) {
	if !b.live() || r.dead[b.client] || r.stuttered(time.Now()) { // whoever looks may be held up between two looks
		return
	}
	until, now := b.lease.Until(), time.Now()
	r.runsOut(b, until)
	if until.Before(now.Add(-late)) {
		r.violate("Until is true", "%v is alive, and ends %v ago", b, now.Sub(until))
	}
	if !r.w.hasServers() || r.mayBeForgotten(b) || r.hasOtherClock(b) || b.isAnyDocked() {
		return
	}
	if over := until.Sub(r.keptUntil(b)); over > 0 {
		r.violate("Until is true", "%v: until %v, which is %v after its end on the server", b, until.Sub(r.began), over)
	}
}

// keptUntil is when too few servers are left that keep the hold of b, if nothing more comes.
func (r *register) keptUntil(b *belief) time.Time {
	keepers := r.w.keepers(b.name)
	ends := make([]time.Time, len(keepers))
	for i, s := range keepers {
		ends[i] = r.endOn(s, b)
	}
	slices.SortFunc(ends, func(x, y time.Time) int { return y.Compare(x) })
	return ends[r.w.plan.need()-1]
}

// endOn is when a server ends the hold of b, by the clock of the world: the latest of those
// that may be it, and long ago if there is none.
func (r *register) endOn(s *server, b *belief) time.Time {
	t, me, last := r.lock(b.name).last[s.index], r.w.label(b.client), int64(0)
	if t.holder != "" && s.owner(t.holder) == me {
		last = t.expiry
	}
	for id, e := range t.readers {
		if b.shared && s.owner(id) == me {
			last = max(last, e)
		}
	}
	return s.at(last)
}

// at is when the clock of the server will show a time, or has shown it, if nobody sets it.
func (s *server) at(ms int64) time.Time {
	left := time.UnixMilli(ms).Sub(s.clock())
	return time.Now().Add(time.Duration(float64(left) / (1 + s.faults.drift)))
}
