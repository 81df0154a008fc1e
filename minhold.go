package dlock

import (
	"context"
	"time"
)

// minHoldLeft is what is left of the minimum hold. It is 0 for a hold that was lost.
func (h *hold) minHoldLeft() time.Duration {
	if h.lock.minHold == 0 || h.skipsMinHold.Load() || h.overBy(ErrLost) {
		return 0
	}
	return h.lock.minHold - h.lock.client.keeper.Age(&h.item)
}

// startMinHold makes this process keep h, which is over, for what is left of its
// minimum hold, if the server cannot. Close waits for that: it closes minHolds when all
// holds are over. The caller holds h.mu.
func (h *hold) startMinHold() {
	rest := h.minHoldLeft()
	if rest <= 0 || h.lock.client.expires(rest) {
		return
	}
	h.isKept = true
	end := h.minHoldEnd.channel()
	h.lock.client.minHolds.Go(func(ctx context.Context) { h.keepMinHold(ctx, rest, end) })
}

// keepMinHold releases h after rest, unless end is closed or ctx is done before.
func (h *hold) keepMinHold(ctx context.Context, rest time.Duration, end <-chan struct{}) {
	t := time.NewTimer(rest)
	defer t.Stop()
	select {
	case <-t.C:
	case <-end:
		return
	case <-ctx.Done():
		return
	}
	if h.endMinHold(nil) {
		ctx, cancel := h.releaseContext(ctx)
		defer cancel()
		_ = h.releaseNow(ctx)
	}
}

// minHoldState reports whether this process keeps the hold, or has kept it, for its
// minimum hold, and whether the hold was lost.
func (h *hold) minHoldState() (kept, lost bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.isKept, h.overBy(ErrLost)
}

// endMinHold ends the minimum hold. A loss that is not nil says that the server has
// taken the hold away. It reports false if there was none to end.
func (h *hold) endMinHold(loss *reason) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.isKept || h.minHoldEnd.wasSent() {
		return false
	}
	if loss != nil {
		h.over.Store(loss) // the leases keep their own reason
	}
	h.minHoldEnd.send()
	return true
}
