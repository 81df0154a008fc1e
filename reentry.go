package dlock

import (
	"context"
	"errors"

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
	if err := l.client.enterScope(ctx, outer, r.mode, r.wait, l.notice(r)); err != nil {
		return nil, err
	}
	h := outer.hold
	e := new(entry)
	h.mu.Lock()
	if err := h.refuses(r.mode); err != nil {
		h.mu.Unlock()
		l.client.leaveScope(outer, r.mode)
		return nil, err
	}
	lease := h.enter(e, outer, r.mode)
	entries, seq := h.entries, h.seq
	h.mu.Unlock()

	if err := h.recount(ctx, entries, seq); err != nil {
		e.end(l.name(), ErrUnlocked, nil)
		_ = e.unlock(context.WithoutCancel(ctx))
		return nil, err
	}
	return lease, nil
}

// refuses says why h cannot be entered in a mode, or nil. It is called with h.mu
// held.
func (h *hold) refuses(mode backend.Mode) error {
	switch {
	case h.over != nil:
		return h.over.kind
	case h.weak && mode == backend.Exclusive:
		return ErrUpgrade
	}
	return nil
}

// enterScope waits for a place among the entries made under outer.
func (c *Client) enterScope(ctx context.Context, outer *entry, mode backend.Mode, wait bool, n *notice) error {
	c.mu.Lock()
	if outer.scope == nil {
		outer.scope = new(gate)
	}
	if outer.scope.tryEnter(mode) {
		c.mu.Unlock()
		return nil
	}
	if !wait {
		c.mu.Unlock()
		return ErrHeld
	}
	_, err := c.await(ctx, outer.scope, c.newWaiter(mode, nil), outer.whenDone(), n)
	if err == errParentEnded {
		return outer.why(outer.lockName())
	}
	return err
}

func (c *Client) leaveScope(outer *entry, mode backend.Mode) {
	c.mu.Lock()
	defer c.mu.Unlock()
	outer.scope.leave(mode)
}

// recount tells the server how often h is entered, where it keeps count. That
// proves the hold too: an entry into a lock that is lost fails.
func (h *hold) recount(ctx context.Context, entries, seq int32) error {
	c := h.lock.client
	if c.reenterer == nil {
		return nil
	}
	err := c.reenterer.Reenter(ctx, h.item.Hold, int(entries), int64(seq))
	if errors.Is(err, ErrLost) {
		h.Lost(err)
	}
	return err
}
