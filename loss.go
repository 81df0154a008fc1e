package dlock

import (
	"cmp"
	"context"
	"time"

	"github.com/dlock-go/dlock/internal/renewal"
)

// Lost implements backend.Observer: the server says that the hold is over.
func (h *hold) Lost(cause error) {
	if h.End(cause) {
		h.lock.client.reportLost(h)
	}
}

// Shortened has the hold end earlier; see backend.Request.Shortened.
func (h *hold) Shortened(sent time.Time, granted time.Duration) {
	h.lock.client.keeper.Shorten(&h.item, sent, granted)
}

// End implements renewal.Owner. It ends all leases with ErrLost, or the minimum hold
// that goes on after them. A loss before the hold has started is seen by start.
func (h *hold) End(cause error) bool {
	loss := &reason{ErrLost, cmp.Or(without(ErrLost, cause), errGone)}
	return (h.endLeases(loss) || h.endMinHold(loss)) && h.wasStarted()
}

// onLosses is told by the keeper of the holds that are over.
func (c *Client) onLosses(lost []renewal.Loss) {
	holds := make([]*hold, len(lost))
	for i, l := range lost {
		holds[i] = l.Owner.(*hold)
	}
	c.reportLost(holds...)
}

// reportLost tells the logger and the hook that holds were lost, and releases what may
// be left of them on the server. It also releases the other locks of a multi-lock.
func (c *Client) reportLost(holds ...*hold) {
	if !c.losses.add(&c.janitor, c.tellLost, holds) {
		c.tellLost(context.Background(), holds)
	}
	c.cleanUp(holds...)
	for _, h := range holds {
		for _, e := range h.openLeases() {
			e.endGroup()
		}
	}
}

func (c *Client) tellLost(_ context.Context, holds []*hold) {
	ctx := context.Background()
	for _, h := range holds {
		r := h.over.Load()
		h.logLost(r)
		single, multi := h.leasesToTell()
		for _, e := range single {
			apart(func() { e.tellEnd(ctx, r.on(e.lock.name)) })
		}
		for _, g := range multi {
			lost := &reason{ErrLost, r.on(h.lock.name)} // says which of the locks
			apart(func() { g.tellEnd(ctx, lost.on(g.lock.name)) })
		}
	}
}
