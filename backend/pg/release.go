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
	if o == nil && !x.grant.isBusy() {
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
	return b.reportOnce(x, o)
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
		case !x.grant.isBusy():
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

// reportOnce returns the result of x to the first caller. For all others the hold was
// over: ErrLost.
func (b *Backend) reportOnce(x *hold, o *outcome) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if x.reported {
		return backend.ErrLost
	}
	x.reported = true
	return o.err
}

// release begins to end a hold, and waits for the answer if it can do so by
// itself. It is called with b.mu held and returns without.
func (b *Backend) release(ctx context.Context, x *hold) *outcome {
	o, c := b.beginRelease(x)
	b.mu.Unlock()
	if c != nil {
		x.grant.session.sendAndRead(ctx, c, time.Time{})
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
		if x.release != nil || x.grant.isBusy() {
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
	g.releaseCall = call{op: unlockOp(g.shared), arg: g.lock.key, onAnswer: g}
	return &g.releaseCall
}

// handle takes the answer to the unlock of g. A call that goes alone was part of a
// statement that failed, and that may have unlocked already.
func (g *grant) handle(c *call) {
	s := g.session
	var err error
	switch {
	case c.err == nil && (c.value > 0 || c.alone):
		if c.value == someoneListens || c.alone {
			s.notifyListeners(c.arg)
		}
	case c.err == nil:
		s.kill(errNotHeld)
		err = backend.Fail(backend.ErrLost, errNotHeld)
	case c.sent.IsZero():
		err = backend.Fail(backend.ErrLost, c.err)
	case s.survives(c.err) && !c.alone:
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
	b.dropGrant(g)
	b.mu.Unlock()
	g.pending.set(err)
}

// Transfer implements backend.Transferer. The token of a grant is a number of the
// sequence, and the numbers up to the next one are the holder's to give out: a
// transfer uses one of them.
func (b *Backend) Transfer(h *backend.Hold) (token uint64, ok bool) {
	x := h.State.(*hold)
	g := x.grant
	b.mu.Lock()
	defer b.mu.Unlock()
	if x.release != nil || g.over || g.shared || g.pending != nil || g.transfers == numberStep-1 {
		return 0, false
	}
	g.transfers++
	g.token++ // of the grant, so that readers have it after a downgrade
	return g.token, true
}
