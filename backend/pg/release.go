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
	ctx, cancel := backend.Bound(ctx, h.TTL)
	defer cancel()
	x := h.State.(*hold)
	b.mu.Lock()
	for x.release == nil {
		if p := x.grant.pending; p != nil && !x.grant.over {
			b.mu.Unlock()
			select {
			case <-p.done: // a downgrade
			case <-ctx.Done():
				return backend.WaitEnded(ctx, false)
			}
			b.mu.Lock()
			continue
		}
		b.release(x) // leaves b.mu
		b.mu.Lock()
	}
	o := x.release
	b.mu.Unlock()
	err := o.wait(ctx)
	if !o.isSet() {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if x.told {
		return backend.ErrLost
	}
	x.told = true
	return err
}

// release begins to end a hold. The last of a grant gives the lock back. It is
// called with b.mu held and returns without.
func (b *Backend) release(x *hold) {
	g := x.grant
	x.release = newOutcome()
	g.holds = without(g.holds, x)
	g.users--
	switch {
	case g.over:
		b.mu.Unlock()
		x.release.set(backend.ErrLost)
	case g.users > 0:
		b.mu.Unlock()
		x.release.set(nil)
	default:
		g.pending = x.release
		b.mu.Unlock()
		b.unlock(g)
	}
}

// unlock gives g back. Its pending outcome says how that went.
func (b *Backend) unlock(g *grant) {
	g.session.start(&call{op: unlockOp(g.shared), arg: g.place.key, then: func(c *call) { b.unlocked(g, c) }})
}

func (b *Backend) unlocked(g *grant, c *call) {
	s := g.session
	var err error
	switch {
	case c.err == nil && c.value == 1:
	case c.err == nil:
		s.kill(errNotHeld)
		err = backend.Fail(backend.ErrLost, errNotHeld)
	case c.sent.IsZero():
		err = backend.Fail(backend.ErrLost, c.err)
	default:
		s.kill(c.err)
		err = backend.Fail(backend.ErrUnavailable, c.err)
	}
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
	h.Sent, h.Granted = proof.sent, h.TTL
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
	g.session.start(&call{op: downgrade, arg: g.place.key, then: func(c *call) { b.downgraded(g, c) }})
	return o.wait(ctx)
}

// downgraded takes the answer. A statement that failed may have done half of
// what it should, so that the session is of no use any more.
func (b *Backend) downgraded(g *grant, c *call) {
	var err error
	switch {
	case c.err == nil && c.value == 1:
	case c.err == nil:
		err = errNotHeld
	default:
		err = c.err
	}
	if err != nil {
		g.session.kill(err)
		err = backend.Fail(backend.ErrLost, err)
	}
	b.mu.Lock()
	o := g.pending
	g.pending, g.shared = nil, true
	g.place.change()
	b.mu.Unlock()
	o.set(err)
}
