package dlock

import (
	"context"

	"github.com/dlock-go/dlock/internal/renewal"
)

// Lost implements backend.Observer.
func (h *hold) Lost(cause error) {
	if h.Over(cause) {
		h.lock.client.reportLost(h)
	}
}

// Over implements renewal.Owner: it ends all leases with ErrLost, or the rest of the
// hold when they have ended. A loss before the hold is live is for begin to see.
func (h *hold) Over(cause error) bool {
	loss := &reason{ErrLost, without(ErrLost, cause)}
	return (h.endLeases(loss) || h.endMinHold(loss)) && h.wasStarted()
}

// reportLost takes from the keeper what is over.
func (c *Client) onLosses(lost []renewal.Loss) {
	holds := make([]*hold, len(lost))
	for i, l := range lost {
		holds[i] = l.Owner.(*hold)
	}
	c.reportLost(holds...)
}

// report has the logger and the hook be told of holds that were lost, and sees to
// it that nothing of them stays on the server, nor of the other locks that are
// nothing worth without them.
func (c *Client) reportLost(holds ...*hold) {
	if !c.losses.add(&c.janitor, c.tellLost, holds) {
		c.tellLost(context.Background(), holds)
	}
	c.cleanUp(holds...)
	for _, h := range holds {
		h.mu.Lock()
		open := h.openLeases()
		h.mu.Unlock()
		for _, e := range open {
			e.endGroup()
		}
	}
}

func (c *Client) tellLost(_ context.Context, holds []*hold) {
	for _, h := range holds {
		r := h.over.Load()
		c.complain("lock lost", h.lock.name(), r.by)
		h.callHook(c.opts.Hooks.Lost, newError("hold", h.lock.name(), r.err()))
	}
}
