package dlock

import (
	"context"

	"github.com/dlock-go/dlock/backend"
)

// reenter makes an entry under outer, which is a lease on the same lock.
func (l *lock) reenter(ctx context.Context, outer *entry, r request) (*Lease, error) {
	if l.noReentry {
		return nil, ErrReentry
	}
	if r.mode == backend.Exclusive && outer.modeNow() == backend.Shared {
		return nil, ErrUpgrade
	}
	if err := l.client.enterScope(ctx, outer, r.mode, r.wait, l.queueObserver(r)); err != nil {
		return nil, err
	}
	h := outer.hold
	e := new(entry)
	h.mu.Lock()
	if err := h.entryError(outer, r.mode); err != nil {
		h.mu.Unlock()
		l.client.leaveScope(outer, r.mode)
		return nil, err
	}
	lease := h.addLease(e, outer, r.mode)
	entries, seq := h.entries, h.seq
	h.mu.Unlock()

	asking := limitFirstAnswer(ctx, h.item.Hold.TTL)
	defer asking.stop()
	if err := h.reportEntries(asking, entries, seq); err != nil {
		e.end()
		l.client.undo(ctx, newError(r.op, l.name(), err), func(ctx context.Context) { _ = e.unlock(ctx) })
		return nil, err
	}
	if why := e.why(); why != nil { // lost meanwhile
		return nil, why
	}
	return lease, nil
}

// entryError says why there can be no entry under outer, or returns nil. Outer may
// have ended, or become shared, since the caller looked. The caller holds h.mu.
func (h *hold) entryError(outer *entry, mode backend.Mode) error {
	switch {
	case h.over.Load() != nil:
		return h.over.Load().kind
	case outer.ended():
		return outer.why()
	case mode == backend.Exclusive && (h.isDowngrading || outer.mode == backend.Shared):
		return ErrUpgrade
	}
	return nil
}

// enterScope waits for a place among the entries made under outer.
func (c *Client) enterScope(ctx context.Context, outer *entry, mode backend.Mode, wait bool, o *queueObserver) error {
	c.mu.Lock()
	if outer.scope == nil {
		outer.scope = new(queue)
	}
	if outer.scope.tryEnter(mode) {
		c.mu.Unlock()
		return nil
	}
	if !wait {
		c.mu.Unlock()
		return ErrHeld
	}
	in := false
	defer func() {
		if !in { // it may have been inside for a moment, for which outer has waited
			c.mu.Lock()
			defer c.mu.Unlock()
			outer.leaveScope()
		}
	}()
	_, _, err := c.awaitTurn(ctx, outer.scope, c.newWaiter(mode, nil), outer.doneChan(), o)
	in = err == nil
	if err == errParentEnded {
		return outer.why()
	}
	return err
}

// leaveScope ends the place of one entry that was to be made under outer.
func (c *Client) leaveScope(outer *entry, mode backend.Mode) {
	c.mu.Lock()
	defer c.mu.Unlock()
	outer.scope.leave(mode)
	outer.leaveScope()
}

// leaveParent ends e's place in its parent's scope, at once or when its own scope
// is empty.
func (c *Client) leaveParent(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.isLeaving = e.parent != nil
	e.leaveScope()
}

// leaveScope ends the place of e in its parent's scope if e is unlocked and its own
// scope is empty, and then the same for its parents. The caller holds the client's
// mutex.
func (e *entry) leaveScope() {
	for ; e.isLeaving && (e.scope == nil || e.scope.isEmpty()); e = e.parent {
		e.isLeaving = false
		e.parent.scope.leave(e.modeNow())
	}
}

// reportEntries tells the server how many leases h has, where the server counts them.
// The answer also proves the hold: an entry into a lost lock fails.
func (h *hold) reportEntries(ctx context.Context, entries, seq int32) error {
	c := h.lock.client
	if c.reenterer == nil {
		return nil
	}
	err := c.reenterer.Reenter(ctx, h.item.Hold, int(entries), int64(seq))
	if isLoss(err) {
		h.Lost(err)
	}
	return err
}
