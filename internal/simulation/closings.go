package simulation

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/dlock-go/dlock"
)

// A program closes a client with whatever context it has: that of what it does under a lease, one with a
// deadline, one that is cancelled meanwhile. Several parts of it may do so, at once or one after the other,
// such as what handles a signal and a deferred call.

// A Closing is how a client is closed before the others.
type Closing struct {
	Leased bool          `json:",omitempty"` // with the context of a lease of it, or of two, one made from the other
	Limit  time.Duration `json:",omitempty"` // after which the context ends; 0: it does not
	Cancel bool          `json:",omitempty"` // by a cancellation, not by a deadline
	Outer  bool          `json:",omitempty"` // what ends is what the lease's context was made from, not what was made from that
	Twice  bool          `json:",omitempty"` // by two at once
	Again  time.Duration `json:",omitempty"` // after which it is closed once more; 0: when all are
}

// closings has clients of a part of the plans be closed so.
func (g *generator) closings() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 170))}
	if !g.often(50) {
		return
	}
	for i := range g.plan.Clients {
		p := &g.plan.Clients[i]
		if p.Asks || p.After > 0 || !g.often(60) {
			continue
		}
		if p.Close == 0 && g.often(30) {
			p.Close = g.within(g.plan.Length/4, g.plan.Length)
		}
		p.Closing = &Closing{
			Leased: g.often(70), Limit: pick(g.draw, 0, g.within(1, 10*g.plan.Latency), g.within(1, 8*time.Second)),
			Cancel: g.often(50), Outer: g.often(50), Twice: g.often(30), Again: pick(g.draw, 0, g.soon(), g.within(1, min(g.plan.TTL, lingers))),
		}
	}
}

// closing is how a client is closed, if not as all are in the end.
func (w *world) closing(c *client) *Closing {
	if how := w.plan.Clients[c.index].Closing; how != nil && w.over.Err() == nil {
		return how
	}
	return nil
}

// context returns what a client is closed with that has those leases, and how long Close may take with it
// at most, where that is usual without a limit.
func (how *Closing) context(ctx context.Context, leases []*dlock.Lease, usual time.Duration) (context.Context, context.CancelFunc, time.Duration) {
	ctx, endOuter := how.limited(ctx, how.Outer)
	for _, l := range leases {
		ctx = l.Context(ctx)
	}
	ctx, end := how.limited(ctx, !how.Outer)
	switch {
	case how.Limit > 0 && !how.Cancel:
		usual = how.Limit
	case how.Limit > 0 && (how.Outer || len(leases) == 0): // what is made from a lease's context ends with that before
		usual = min(usual, how.Limit)
	}
	return ctx, func() { end(); endOuter() }, usual
}

// limited is ctx, which ends after the limit if it is that one that does.
func (how *Closing) limited(ctx context.Context, ends bool) (context.Context, context.CancelFunc) {
	if !ends || how.Limit == 0 {
		return context.WithCancel(ctx)
	}
	if !how.Cancel {
		return context.WithTimeout(ctx, how.Limit)
	}
	ctx, cancel := context.WithCancel(ctx)
	t := time.AfterFunc(how.Limit, cancel)
	return ctx, func() { t.Stop(); cancel() }
}

// awaitLeases returns up to two leases of a client that are alive, and waits for one for as long as a lease
// lasts.
func (w *world) awaitLeases(c *client) (leases []*dlock.Lease) {
	r := w.reg
	for waited := time.Duration(0); len(leases) == 0 && waited < w.plan.TTL; waited += w.plan.TTL / 20 {
		r.mu.Lock()
		for _, b := range r.beliefs {
			if b.client == c.index && len(leases) < 2 && b.live() {
				leases = append(leases, b.lease)
			}
		}
		r.mu.Unlock()
		if len(leases) == 0 && sleep(w.over, w.plan.TTL/20) != nil {
			break
		}
	}
	return leases
}

// anyEnded reports whether one of the leases has ended, and not by Close.
func anyEnded(leases []*dlock.Lease) bool {
	for _, l := range leases {
		if err := l.Err(); err != nil && kindOf(err) != dlock.ErrClosed {
			return true
		}
	}
	return false
}

// callsClose calls Close, from two goroutines at once if it is closed so: one of these has nothing to do.
func (w *world) callsClose(ctx context.Context, c *client, how *Closing) error {
	if how == nil || !how.Twice {
		return c.Close(ctx)
	}
	began := time.Now()
	var first error
	var took time.Duration
	var other group
	other.run(func() { first, took = c.Close(ctx), time.Since(began) })
	second := c.Close(ctx)
	tookToo := time.Since(began)
	other.wait()
	if min(took, tookToo) > late || first != nil && second != nil {
		w.closesTooLate(c, began, "two at once say %v after %v, and %v after %v", first, took, second, tookToo)
	}
	if first != nil {
		return first
	}
	return second
}

// closesAgain closes a client that is closed: that does nothing, at once, whatever becomes of the first call.
func (w *world) closesAgain(c *client) {
	<-c.closes
	time.Sleep(time.Nanosecond) // until that has begun
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for _, ctx := range []context.Context{context.Background(), over} {
		began := time.Now()
		err := c.Close(ctx)
		if took := time.Since(began); err != nil || took > late {
			w.closesTooLate(c, began, "again: %v after %v", err, took)
		}
	}
}

func (w *world) closesTooLate(c *client, began time.Time, format string, args ...any) {
	r := w.reg
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.stuttered(began) && !r.stood(c.index, began) {
		r.violate("Close does what it says", "c%d: closed "+format, append([]any{c.index}, args...)...)
	}
}

// confirmsAll checks that a Close that fails has had no time, or something was wrong. What it leaves without
// time is as if its client were cut off, as is one that asks after a lock where nothing answers any more.
func (r *register) confirmsAll(client int, k *closing, err error) {
	if k.had < r.closesWithin(k) || r.isAstray(client, r.w.names()) {
		r.touches = append(r.touches, touched{
			kind: "hasty close", client: client, server: everywhere, from: k.began, to: time.Now().Add(longestTTL(r.w.plan.TTL) + lingers),
		})
		return
	}
	if !r.touched(client, k.began.Add(-2*longestTTL(r.w.plan.TTL)-lingers), whatever) && !r.stuttered(k.began) && !r.stood(client, k.began) {
		r.violate("Close does what it says", "c%d: it had %v, nothing is wrong, and it says %v", client, k.had, err)
	}
}
