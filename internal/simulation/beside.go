package simulation

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/dlock-go/dlock"
)

// besides has downgrades come at the same time as the calls under the lease: before one of them,
// within its lease, or soon after.
func (g *generator) besides() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 41))}
	if g.often(60) {
		return
	}
	g.each(func(op *Op) {
		if len(op.Inside) > 0 && g.often(30) {
			o := pick(g.draw, op.Inside...)
			op.Downgrade, op.Together = true, true
			op.Beside = g.within(1, o.Pause+o.Hold+10*g.plan.Latency)
		}
	})
}

// downgradeBeside downgrades a lease while others enter it.
func (a *actor) downgradeBeside(ctx context.Context, lease *dlock.Lease, o *owner, op *Op) {
	if a.rest(ctx, op.Beside) == nil {
		a.downgrade(ctx, lease, o, op)
	}
}

// lowered notes how a Downgrade of what was exclusive has ended. One that an open entry has kept
// from that leaves the lease exclusive: the server is not asked.
func (r *register) lowered(all, weak []*belief, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range all {
		b.lowering--
	}
	for _, b := range weak {
		switch {
		case errors.Is(err, dlock.ErrReentry) && b.lowering == 0 && b.lowered.IsZero():
			b.shared, b.downFrom = false, false
			delete(r.lock(b.name).weak, b.token)
		case err == nil:
			b.lowered = time.Now()
			r.writesUnder(b)
		}
	}
}

// readsOnly checks that a lease that was downgraded says so.
func (a *actor) readsOnly(lease *dlock.Lease, c *call) {
	if !lease.Shared() {
		a.w.reg.mu.Lock()
		defer a.w.reg.mu.Unlock()
		a.w.reg.violate("nobody writes under a reader", "c%d has downgraded %v, which is exclusive", c.client, c.names)
	}
}

// writesUnder checks that nobody writes under a lease that is shared.
func (r *register) writesUnder(b *belief) {
	for _, o := range r.beliefs {
		if o != b && o.under(b) && !o.shared && o.live() && b.live() {
			r.violate("nobody writes under a reader", "%v; under %v", o, b)
		}
	}
}

// writes checks that a lease that a call has got does not write under one that was shared when the
// call began.
func (r *register) writes(c *call, b *belief) {
	for p := b.parent; p != nil && !b.shared; p = p.parent {
		if !p.lowered.IsZero() && p.lowered.Before(c.start) {
			r.violate("nobody writes under a reader", "%v; under %v", b, p)
		}
	}
}
