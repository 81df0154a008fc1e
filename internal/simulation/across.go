package simulation

import (
	"context"
	"math/rand/v2"
	"slices"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/simulation/slowsync"
)

// A process may have several clients, and hands the context of what it does to each of them. To a client
// the lease of another is that of a stranger: it enters none of its locks again, waits for what the other
// holds, and stops with it.

// across has calls under a lease be made by another client in a part of the plans.
func (g *generator) across() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 171))}
	var others []int
	for i, c := range g.plan.Clients {
		if c.After == 0 && !c.Asks {
			others = append(others, i+1)
		}
	}
	if len(others) < 2 || !g.often(30) {
		return
	}
	g.each(func(op *Op) {
		for i := range op.Inside {
			if g.often(50) {
				op.Inside[i].By = pick(g.draw, others...)
			}
		}
	})
}

// doFor does one op under ctx, which is that of a lease, by the client that makes it. A process that stands
// still has one client.
func (a *actor) doFor(ctx context.Context, o *owner, op *Op) {
	if op.By == 0 || a.w.clients[op.By-1] == a.c || a.w.clients[op.By-1].dead.Load() || slowsync.HasProcesses() {
		a.do(ctx, o, op)
		return
	}
	(&actor{a.w, a.w.clients[op.By-1], a.asides}).do(ctx, o, op)
}

// isAcross reports whether one of the leases is that of another client.
func (o *owner) isAcross(client int) bool {
	return o.any(func(b *belief) bool { return b.client != client })
}

// isAnyOverAcross reports whether one of the leases of other clients is over.
func (o *owner) isAnyOverAcross(client int) bool {
	return o.any(func(b *belief) bool { return b.client != client && b.lease.Err() != nil })
}

func (o *owner) any(is func(*belief) bool) bool {
	for ; o != nil; o = o.outer {
		if slices.ContainsFunc(o.beliefs, is) {
			return true
		}
	}
	return false
}

// isClosing reports whether a client is closed, or one whose leases a call of it is made under: it is told
// that those have ended.
func (r *register) isClosing(client int, o *owner) bool {
	return r.closing[client] || o.any(func(b *belief) bool { return r.closing[b.client] })
}

// mayRefuse reports whether a call may be refused by a lease of its own client that it is made under, if that
// is what err says.
func (c *call) mayRefuse(err error) bool {
	if kind := kindOf(err); c.within == nil || kind != dlock.ErrReentry && kind != dlock.ErrUpgrade {
		return true
	}
	return c.within.any(func(b *belief) bool { return b.client == c.client && slices.Contains(c.names, b.name) })
}
