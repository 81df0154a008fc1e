package renewal

import (
	"time"

	"github.com/dlock-go/dlock/backend"
)

// soonPart: a shortened hold is renewed within this part of a lease at the soonest, so that it shares
// that with others.
const soonPart = 64

// Shorten has the hold end no later than if it had been proven last at sent, for that long: that is
// what the server still has of it. It is renewed when it then would be, or soon if that is over. An
// item that is not added yet is shortened as it is.
func (k *Keeper) Shorten(it *Item, sent time.Time, granted time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.clock.now()
	rest := k.planFor(&backend.Hold{Sent: sent, Granted: granted}, 0, never, now)
	switch {
	case it.owner == nil:
		it.batch.Store(&batch{plan: rest})
		return
	case it.place == 0:
		return
	}
	b := it.batch.Load()
	n := b.plan
	if n.shorten(&rest, now); n.deadline == b.deadline {
		return
	}
	if n.first != never {
		left := time.Duration(n.until - now.at)
		n.due = max(min(n.due, rest.first), now.at+moment(min(n.lease/soonPart, left/4)))
		n.first = n.due
	}
	s := b.shortened
	if s == nil || s.index == 0 || s.isQueued || !s.fits(&n, now) {
		s = &batch{plan: n}
		k.schedule.add(s)
		b.shortened = s
	}
	k.removeFromBatch(it)
	k.add(it, s)
	k.arm(now)
}

// shorten has p end when rest does, if that is earlier. What is left of the lease counts from now.
func (p *plan) shorten(rest *plan, now instant) {
	d := deadline{min(p.deadline.running, rest.deadline.running), min(p.deadline.wall, rest.deadline.wall)}
	if d == p.deadline {
		return
	}
	p.deadline, p.until = d, d.until(now)
	p.span = max(time.Duration(p.until-now.at), 0)
}
