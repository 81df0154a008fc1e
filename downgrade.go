package dlock

import (
	"context"
	"errors"

	"github.com/dlock-go/dlock/backend"
)

// downgrade makes the hold shared. The keeper lends the hold meanwhile: no renewal
// reads it while it changes, and no release overtakes the change.
func (e *entry) downgrade(ctx context.Context) error {
	h, c := e.hold, e.lock.client
	if e.modeNow() == backend.Shared {
		return nil
	}
	switch {
	case c.downgrader == nil:
		return ErrUnsupported
	case e.parent != nil:
		return backend.Fail(ErrReentry, errNestedDowngrade)
	}
	if err := h.canDowngrade(e, false); err != nil { // which needs no answer to a renewal under way
		return err
	}
	if left, ok := c.keeper.Left(&h.item); ok {
		var cancel context.CancelFunc
		ctx, cancel = backend.Bound(ctx, left)
		defer cancel()
	}
	var err error
	switch {
	case c.keeper.Borrow(ctx, &h.item):
		err = e.downgradeNow(ctx)
		c.keeper.Return(&h.item)
	case ctx.Err() != nil:
		err = backend.WaitEnded(ctx, false)
	default:
		err = ErrLost // the keeper is about to report it
	}
	if isLoss(err) {
		h.Lost(err)
	}
	e.check()
	if why := e.why(); why != nil {
		return why
	}
	return err
}

// downgradeNow asks the server, unless another call has already downgraded the hold.
func (e *entry) downgradeNow(ctx context.Context) error {
	if e.modeNow() == backend.Shared {
		return nil
	}
	if err := e.hold.canDowngrade(e, true); err != nil {
		return err
	}
	err := e.lock.client.downgrader.Downgrade(ctx, e.hold.item.Hold)
	switch {
	case err == nil:
		e.lock.client.admitReaders(e)
	case errors.Is(err, ErrUnsupported): // nothing was asked
		e.hold.stayExclusive()
	}
	return err
}

// canDowngrade returns an error if the hold cannot become shared now. With asking set, the
// caller is about to ask the server: from then on no goroutine may use the hold to write,
// because the server may make it shared before the answer arrives.
func (h *hold) canDowngrade(e *entry, asking bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e.ended() { // the hold may have another owner already
		return e.why()
	}
	for _, o := range h.leases {
		if o != e && o.mode == backend.Exclusive {
			return backend.Fail(ErrReentry, errOpenEntry)
		}
	}
	h.isDowngrading = h.isDowngrading || asking
	return nil
}

// stayExclusive notes that the server was not asked after all.
func (h *hold) stayExclusive() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.isDowngrading = false
}

// admitReaders makes the hold shared for this client and admits its waiting readers.
// It does nothing if the hold has ended meanwhile: then the exclusive place is given
// up.
func (c *Client) admitReaders(e *entry) {
	h := e.hold
	c.mu.Lock()
	defer c.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over.Load() != nil {
		return
	}
	h.item.Hold.Mode, e.mode = backend.Shared, backend.Shared
	h.state.queue.Downgrade()
}
