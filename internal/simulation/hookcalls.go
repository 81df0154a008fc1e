package simulation

import (
	"context"
	"math/rand/v2"
)

// A hook may call its client: it is called without any lock of the client held. Close, which waits for
// hooks, it calls in another goroutine.

// closesIn has some clients that are closed early be closed by a hook, while that is called.
func (g *generator) closesIn() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 74))}
	for i := range g.plan.Clients {
		if c := &g.plan.Clients[i]; c.Hooks != "" && c.Close == 0 && c.After == 0 && g.often(15) {
			c.Close = g.within(g.plan.Length/4, g.plan.Length)
			c.ClosedIn = pick(g.draw, "Acquiring", "Waiting", "Acquired", "NotAcquired", "Renewed", "RenewalFailed", "Released", "Lost")
		}
	}
}

// closeIn has the next hook of that name close the client, from another goroutine.
func (l *listener) closeIn(hook string, closes func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closedIn, l.closes = hook, closes
}

// callsClient is what a hook does with its client: it looks at the lease that came last, and may close all.
func (l *listener) callsClient(ctx context.Context, hook string) {
	defer l.misbehaves(ctx, hook)
	l.mu.Lock()
	h, closes := l.newest, l.closes
	if hook == l.closedIn {
		l.closedIn, l.closes = "", nil
	} else {
		closes = nil
	}
	l.mu.Unlock()
	if closes != nil {
		go closes()
	}
	if h == nil {
		return
	}
	before := h.lease.Err()
	until, done := h.lease.Until(), isClosed(h.lease.Done())
	if before != nil && (!done || !until.IsZero()) {
		l.lies("in %s a lease is over: %v, done %t, until %v", hook, before, done, until)
	}
	h.lease.Wanted()
	h.lease.Shared()
	if ctx := h.lease.Context(ctx); before != nil && ctx.Err() == nil {
		l.lies("in %s a lease is over: %v, and its context is not", hook, before)
	}
}
