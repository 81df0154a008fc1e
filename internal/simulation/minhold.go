package simulation

import (
	"cmp"
	"slices"
	"time"

	"github.com/dlock-go/dlock/backend/quorum"
)

// A rest is a lock that was unlocked, and that the server keeps for its minimum hold, or its client.
type rest struct {
	by       *belief
	end      time.Time
	shared   bool
	byClient bool
}

// atLeast is until when the server has to keep the lock of a lease, also after its Unlock.
// WithMinHold counts from when the lock was acquired, which a hook that takes its time has
// delayed the caller's knowledge of; and the time of the server, by whose clock it ends, may
// drift.
func (r *register) atLeast(b *belief, op *Op) time.Time {
	if op.MinHold == 0 || b.parent != nil {
		return time.Time{}
	}
	least := op.MinHold - time.Duration(float64(op.MinHold)*r.w.plan.fastest())
	if r.w.plan.Clients[b.client].Hooks == "slow" {
		least -= 10 * hookTime
	}
	if !b.late.IsZero() {
		return b.late.Add(least)
	}
	return b.granted.Add(least)
}

// leavesTo notes which locks an Unlock without an error has left to the server. Of a lease that
// others were made under, and outlive, the last of these gives back the lock, and may fail.
func (r *register) leavesTo(all []*belief, op *Op) {
	for _, b := range all {
		if !op.Early && time.Now().Before(b.least) {
			r.kept[b.name] = append(r.kept[b.name], rest{b, b.least, b.shared, r.keepsItself(b, op)})
		}
	}
}

// keepsItself reports whether the client of a lease may keep its lock for the rest of a minimum hold, as it
// has kept it before: members of a quorum are left no more than the greatest TTL.
func (r *register) keepsItself(b *belief, op *Op) bool {
	return r.isTooLong(time.Until(b.granted.Add(op.MinHold)))
}

// isTooLong reports whether a member of a quorum may have forgotten a hold, and vote, before it has kept that
// for so long.
func (r *register) isTooLong(d time.Duration) bool {
	return r.w.plan.waitsToVote() && d > cmp.Or(r.w.plan.MaxTTL, quorum.DefaultMaxTTL)
}

// keepsFor is for how long a client has to keep locks itself that were unlocked, or would be: Close waits
// for that.
func (r *register) keepsFor(client int) (d time.Duration) {
	for _, rests := range r.kept {
		for _, k := range rests {
			if k.byClient && k.by.client == client {
				d = max(d, time.Until(k.end))
			}
		}
	}
	for _, b := range r.beliefs {
		if b.client == client && r.isTooLong(time.Until(b.least)) {
			d = max(d, time.Until(b.least))
		}
	}
	if d > 0 && r.w.plan.Clients[client].Hooks == "slow" {
		d += 10 * hookTime // see atLeast
	}
	return d
}

// mayGiveUp reports whether a client that keeps a lock itself may have lost it, as it may lose a lease, or
// closes, which ends what it keeps when the context of that does.
func (r *register) mayGiveUp(k rest) bool {
	client, ttl := k.by.client, k.by.ttl
	return k.byClient && (r.closing[client] || r.mayHaveCost(client, k.by.granted.Add(-2*ttl-lingers), ttl))
}

// isNudgedPast reports whether the clock of a member was set forward, since a hold began, by what is left of its
// minimum, and the members that keep it are no majority without that one.
func (r *register) isNudgedPast(k rest) bool {
	now, kept := time.Now(), 0
	for _, s := range r.w.masters() {
		if t := r.lock(k.by.name).last[s.index].asOf(s.clock().UnixMilli()); t.held() && uint64(t.token) == k.by.token {
			kept++
		}
	}
	return kept <= r.w.plan.spare() && slices.ContainsFunc(r.nudges, func(n nudge) bool {
		return n.at.After(k.by.granted) && now.Add(n.size).After(k.end)
	})
}

// endsByOtherClock reports whether a server may have taken over since a hold began whose clock is ahead by what is
// left of its minimum: the end that it has of that is a time of the clock of the server before, and nobody renews what
// was unlocked.
func (r *register) endsByOtherClock(k rest) bool {
	skews := r.w.plan.Skews
	if len(skews) == 0 || !r.touched(k.by.client, k.by.granted, splits) {
		return false
	}
	return time.Until(k.end) <= slices.Max(skews)-slices.Min(skews)
}

// comesTooEarly checks that a lock that was unlocked is granted to nobody while its minimum
// hold lasts, or to readers beside one. A server that has lost its data keeps nothing, and
// Break ends a minimum hold too, as the documentation of operating says. Where replicas are
// asked they are asked about what is believed: nobody believes in a lock that was unlocked.
func (r *register) comesTooEarly(b *belief) {
	now := time.Now()
	if r.stuttered(now) || b.lease.Err() != nil { // it has begun, or is over, before the caller knew
		return
	}
	var left []rest
	for _, k := range r.kept[b.name] {
		if !now.Before(k.end) {
			continue
		}
		left = append(left, k)
		if b.parent != nil || k.shared && b.shared || r.dataLost() || r.isStrange(b.name, k.by.granted) || r.promoted() || r.endsByOtherClock(k) || r.isNudgedPast(k) || r.wasSuspended(k.by.granted) || r.hasBroken(k.by.granted) ||
			r.mayGiveUp(k) || r.losses[party{k.by.client, b.name}].After(k.by.granted) { // of its hold another lease has been lost since
			continue
		}
		r.violate("a minimum hold is kept", "%v: c%d had it under token %d, and it is kept for %v more", b, k.by.client, k.by.token, k.end.Sub(now))
	}
	r.kept[b.name] = left
}
