package pg

import (
	"context"
	"errors"

	"github.com/dlock-go/dlock/backend"
)

// errNotHeld is what became of a session that has not the locks it had.
var errNotHeld = errors.New("the server says that the lock was not held")

// Release implements backend.Backend.
func (b *Backend) Release(ctx context.Context, h *backend.Hold) error {
	x := h.State.(*hold)
	ctx, cancel := backend.Bound(ctx, h.TTL)
	defer cancel()
	b.mu.Lock()
	for x.release == nil && x.grant.isBusy() { // with a downgrade
		downgraded := x.grant.pending
		b.mu.Unlock()
		if err := downgraded.wait(ctx); !downgraded.isSet() {
			return err
		}
		b.mu.Lock()
	}
	c := b.beginRelease(x)
	o := x.release
	b.mu.Unlock()
	if c != nil {
		x.grant.session.start(c)
	}
	if err := o.wait(ctx); !o.isSet() {
		return err
	}
	return b.reportOnce(x, o)
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

// beginRelease begins to end x, unless that has begun or a downgrade is under way. The
// last hold of a grant gives the lock back: the caller sends the call that is returned
// then. It is called with b.mu held.
func (b *Backend) beginRelease(x *hold) *call {
	g := x.grant
	if x.release != nil || g.isBusy() {
		return nil
	}
	o := newOutcome()
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
		return g.unlock()
	}
	return nil
}

// ReleaseAll implements backend.BatchReleaser. The locks of one session are given back
// by one statement, or a few.
func (b *Backend) ReleaseAll(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	unlocks := make(map[*session][]*call)
	b.mu.Lock()
	for _, h := range holds {
		x := h.State.(*hold)
		if c := b.beginRelease(x); c != nil {
			unlocks[x.grant.session] = append(unlocks[x.grant.session], c)
		}
	}
	b.mu.Unlock()
	for s, calls := range unlocks {
		s.start(calls...)
	}
	ctx, cancel := backend.BoundAll(ctx, holds)
	defer cancel()
	for _, h := range holds {
		report(h, b.Release(ctx, h))
	}
}

// unlock returns the call that gives g back. The pending outcome of g says how
// that went.
func (g *grant) unlock() *call {
	return &call{op: unlockExclusive.of(g.shared), arg: g.lock.key, onAnswer: g.unlocked}
}

// unlocked takes the answer to the unlock of g. One that has failed may have given the lock
// back before that: then the session drops the lock, if it still has it.
func (g *grant) unlocked(c *call) {
	s, drops := g.session, c.op != unlockExclusive.of(g.shared)
	var err error
	switch {
	case c.err == nil && (c.value > 0 || drops):
		if c.value == someoneListens || drops {
			s.notifyListeners(c.arg)
		}
	case c.err == nil:
		s.kill(errNotHeld)
		err = backend.Fail(backend.ErrLost, errNotHeld)
	case c.sent.IsZero():
		err = backend.Fail(backend.ErrLost, c.err)
	case s.survives(c.err) && !drops:
		c.op = c.op.undo()
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
