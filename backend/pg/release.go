package pg

import (
	"context"
	"errors"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// errNotHeld is what became of a session that has not the locks it had.
var errNotHeld = errors.New("the server says that the lock was not held")

// Release implements backend.Backend.
func (b *Backend) Release(ctx context.Context, h *backend.Hold) error {
	x := h.State.(*hold)
	b.mu.Lock()
	o := x.release
	if o == nil && !x.grant.busy() {
		o = b.release(ctx, x) // leaves b.mu
	} else {
		b.mu.Unlock()
	}
	if o == nil || !o.isSet() {
		var cancel context.CancelFunc
		ctx, cancel = backend.Bound(ctx, h.TTL)
		defer cancel()
		var err error
		if o, err = b.releaseLater(ctx, x, o); err != nil {
			return err
		}
	}
	return b.tell(x, o)
}

// releaseLater waits for o, the end of x, which it begins first if that could
// not be done because of a downgrade.
func (b *Backend) releaseLater(ctx context.Context, x *hold, o *outcome) (*outcome, error) {
	for o == nil {
		b.mu.Lock()
		switch {
		case x.release != nil:
			o = x.release
			b.mu.Unlock()
		case !x.grant.busy():
			o = b.release(ctx, x)
		default:
			p := x.grant.pending
			b.mu.Unlock()
			if err := p.wait(ctx); !p.isSet() {
				return nil, err
			}
		}
	}
	if err := o.wait(ctx); !o.isSet() {
		return nil, err
	}
	return o, nil
}

// tell returns how x ended to the first who asks. For the others it was over.
func (b *Backend) tell(x *hold, o *outcome) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if x.told {
		return backend.ErrLost
	}
	x.told = true
	return o.err
}

// release begins to end a hold, and waits for the answer if it can do so by
// itself. It is called with b.mu held and returns without.
func (b *Backend) release(ctx context.Context, x *hold) *outcome {
	o, c := b.beginRelease(x)
	b.mu.Unlock()
	if c != nil {
		x.grant.session.drive(ctx, c, time.Time{})
	}
	return o
}

// beginRelease returns the outcome of the end of x. The last hold of a grant gives the
// lock back: that takes a call. It is called with b.mu held.
func (b *Backend) beginRelease(x *hold) (*outcome, *call) {
	g, o := x.grant, newOutcome()
	x.release = o
	g.holds = without(g.holds, x)
	g.users--
	switch {
	case g.over:
		o.set(backend.ErrLost)
	case g.users > 0:
		o.set(nil)
	default:
		g.pending = o
		return o, g.unlock()
	}
	return o, nil
}

// ReleaseAll implements backend.BatchReleaser. The locks of one session are given back
// by one statement, or a few.
func (b *Backend) ReleaseAll(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	var longest time.Duration
	unlocks := make(map[*session][]*call)
	b.mu.Lock()
	for _, h := range holds {
		longest = max(longest, h.TTL)
		x := h.State.(*hold)
		if x.release != nil || x.grant.busy() {
			continue
		}
		if _, c := b.beginRelease(x); c != nil {
			unlocks[x.grant.session] = append(unlocks[x.grant.session], c)
		}
	}
	b.mu.Unlock()
	for s, calls := range unlocks {
		s.start(calls...)
	}
	ctx, cancel := backend.Bound(ctx, longest)
	defer cancel()
	for _, h := range holds {
		report(h, b.Release(ctx, h))
	}
}

// unlock returns the call that gives g back. The pending outcome of g says how
// that went.
func (g *grant) unlock() *call {
	g.last = call{op: unlockOp(g.shared), arg: g.place.key, then: g}
	return &g.last
}

// follow implements sequel: g has been given back. A call that goes alone was part
// of a statement that failed, which may have done that.
func (g *grant) follow(c *call) {
	s := g.session
	var err error
	switch {
	case c.err == nil && (c.value > 0 || c.alone):
		if c.value == heardOf || c.alone {
			s.tellListeners(c.arg)
		}
	case c.err == nil:
		s.kill(errNotHeld)
		err = backend.Fail(backend.ErrLost, errNotHeld)
	case c.sent.IsZero():
		err = backend.Fail(backend.ErrLost, c.err)
	case s.survived(c.err) && !c.alone:
		// It may have been given back before the statement failed.
		c.alone, c.err = true, nil
		s.start(c)
		return
	default:
		s.kill(c.err)
		err = backend.Fail(backend.ErrUnavailable, c.err)
	}
	b := s.backend
	b.mu.Lock()
	b.drop(g)
	b.mu.Unlock()
	g.pending.set(err)
}

// Renew implements backend.Renewer. One exchange renews all holds of a
// session, and none is needed if the session has answered just now.
func (b *Backend) Renew(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	proofs := make(map[*session]*renewal)
	for _, h := range holds {
		if s := h.State.(*hold).grant.session; proofs[s] == nil {
			proofs[s] = s.renew(time.Now().Add(-h.TTL / 6))
		}
	}
	for _, h := range holds {
		x := h.State.(*hold)
		report(h, b.renewed(ctx, h, x, proofs[x.grant.session]))
	}
}

func (b *Backend) renewed(ctx context.Context, h *backend.Hold, x *hold, proof *renewal) error {
	select {
	case <-proof.done:
	case <-ctx.Done():
		return backend.WaitEnded(ctx, false)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case x.grant.over:
		return backend.Fail(backend.ErrLost, proof.err)
	case proof.err != nil:
		return classify(proof.err)
	}
	h.Sent, h.Granted = proof.sent, min(h.TTL, x.grant.session.lease())
	return nil
}

// Downgrade implements backend.Downgrader.
func (b *Backend) Downgrade(ctx context.Context, h *backend.Hold) error {
	x := h.State.(*hold)
	g := x.grant
	b.mu.Lock()
	switch {
	case x.release != nil || g.over:
		b.mu.Unlock()
		return backend.ErrLost
	case g.pending != nil:
		o := g.pending
		b.mu.Unlock()
		return o.wait(ctx)
	case g.shared:
		b.mu.Unlock()
		return nil
	}
	o := newOutcome()
	g.pending = o
	b.mu.Unlock()
	g.session.start(&call{op: downgrade, arg: g.place.key, then: sequelFunc(func(c *call) { b.downgraded(g, c) })})
	return o.wait(ctx)
}

// downgraded takes the answer. A statement that failed may have done half of
// what it should, so that the session is of no use any more.
func (b *Backend) downgraded(g *grant, c *call) {
	s := g.session
	err := c.err
	if err == nil && c.value != 1 {
		err = errNotHeld
	}
	if err != nil {
		s.kill(err)
		err = backend.Fail(backend.ErrLost, err)
	} else {
		s.start(&call{op: listeners, arg: c.arg, then: sequelFunc(func(c *call) {
			if c.value == heardOf || c.err != nil {
				s.tellListeners(c.arg)
			}
		})})
	}
	b.mu.Lock()
	o := g.pending
	g.pending, g.shared = nil, true
	g.place.change()
	b.mu.Unlock()
	o.set(err)
}
