package simulation

import (
	"slices"
	"time"
)

// A server that loses its data, or that is replaced by one that has not everything, does not
// know who had a lock. It may grant that to somebody else, and who had it hears of that as it
// renews, or its lease runs out. What was granted afterwards excludes others again.

// mayOverlap reports whether two clients may believe in holds that exclude each other: the older
// was granted before data was lost, and had no time to hear of that.
func (r *register) mayOverlap(a, b *belief) bool {
	if a.client == b.client {
		return false
	}
	if r.w.plan.Backend == "quorum" {
		return r.dataLost(a.client, b.client) || r.isCut(a) || r.isCut(b)
	}
	return r.mayBeForgotten(a) || r.mayBeForgotten(b)
}

// mayBeForgotten reports whether the server may not know a hold that its client believes in.
func (r *register) mayBeForgotten(b *belief) bool {
	if r.w.plan.Backend == "quorum" {
		return r.anyDataLost(b.client)
	}
	now := time.Now()
	if r.mayEndEarly(b) || r.mayForgetStrange(b) {
		return true
	}
	return slices.ContainsFunc(r.touches, func(t touched) bool {
		return t.isAbout(b.name) && r.losesData(t, b) && b.asked.Before(t.to) && now.Before(t.to.Add(b.lasts()+reaction))
	})
}

// mayEndEarly reports whether a server has taken over whose clock is ahead, while less of a lease
// was left than by how much: it was not renewed in time, or is not to be.
func (r *register) mayEndEarly(b *belief) bool {
	if len(r.w.plan.Skews) == 0 {
		return false
	}
	took := slices.ContainsFunc(r.touches, func(t touched) bool {
		return kinds[t.kind].splits && b.asked.Before(t.to) && time.Now().Before(t.to.Add(b.lasts()+reaction))
	})
	costs := func(t touch) bool { return t.loses || t.fails && !t.splits }
	return took && (b.limited || r.touched(b.client, time.Now().Add(-2*b.lasts()-lingers), costs))
}

// hasOtherClock reports whether a server may have taken over since a lease was renewed last whose
// clock is ahead.
func (r *register) hasOtherClock(b *belief) bool {
	return len(r.w.plan.Skews) > 0 && r.touched(b.client, time.Now().Add(-b.lasts()), splits)
}

// reaction is within what time a lease that is over is seen to be.
const reaction = time.Second

// lasts is for how long a lease goes on without an answer of the server.
func (b *belief) lasts() time.Duration {
	if b.limited {
		return max(b.ttl, b.until.Sub(b.granted))
	}
	return b.ttl
}

// losesData reports whether a fault may have had the server of a lock forget a hold.
func (r *register) losesData(t touched, b *belief) bool {
	careful := r.w.plan.Acks && r.w.plan.areCareful([]int{b.client}) && !r.movesThen(t)
	if !kinds[t.kind].data || (t.kind == "promotion" || t.kind == "takeover") && careful {
		return false
	}
	return r.w.layout == nil || !slices.Contains(local, t.kind) || t.server == homeOf(slotOf(lockKey(b.name))) || r.hasMoved()
}

// movesThen reports whether a slot was on its way, or had just come, as something happened: no replica where it
// comes to has acknowledged the keys that move.
func (r *register) movesThen(t touched) bool {
	return slices.ContainsFunc(r.touches, func(o touched) bool {
		return o.kind == "slot-move" && !o.from.After(t.to) && !o.to.Before(t.from)
	})
}

// hasMoved reports whether slots have ever moved: the server of a lock may be any then.
func (r *register) hasMoved() bool {
	return slices.ContainsFunc(r.touches, func(t touched) bool { return t.kind == "slot-move" })
}

// askedFor is a time no later than when the hold of a lease was asked for: one that was passed on
// within its client was asked for with the first.
func (r *register) askedFor(c *call, b *belief) time.Time {
	if b.parent != nil {
		return b.parent.asked
	}
	p := party{b.client, b.name}
	before, found := r.holds[p]
	goes := found && (r.hasLease(p) || time.Since(r.gave[p]) <= passing)
	asked := c.start.Add(-r.reply(c))
	if goes && before.Before(asked) {
		asked = before
	}
	r.holds[p] = asked
	return asked
}

// passing is how long it takes a client to pass a lock on, with slow hooks.
const passing = 20 * hookTime

func (r *register) hasLease(p party) bool {
	return slices.ContainsFunc(r.beliefs, func(b *belief) bool { return b.client == p.client && b.name == p.name })
}

// A fence is the greatest token of all exclusive leases that calls had returned by a time.
type fence struct {
	at    time.Time
	token uint64
	asked time.Time // when the lease that was returned then was asked for
	own   uint64    // its token
}

// growsSince reports whether a token is above all those that had been returned before then.
func (l *lockLog) growsSince(token uint64, then time.Time) bool {
	for i := len(l.fences) - 1; i >= 0; i-- {
		if l.fences[i].at.Before(then) {
			return token > l.fences[i].token
		}
	}
	return true
}
