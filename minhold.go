package dlock

import (
	"context"
	"time"
)

// releaseAfterMinHold releases h after its last lease was unlocked. If its minimum
// hold is not over, the server keeps the hold for that long, or this process does.
func (h *hold) releaseAfterMinHold(ctx context.Context) error {
	resting, lost := h.minHoldState()
	switch {
	case lost:
		return ErrLost // and cleanup releases it
	case resting == nil:
		return h.releaseNow(ctx)
	}
	h.lock.client.minHolds.Go(func(ctx context.Context) {
		t := time.NewTimer(h.minHoldLeft())
		defer t.Stop()
		select {
		case <-t.C:
		case <-resting:
			return
		case <-ctx.Done():
			return
		}
		if h.endMinHold(nil) {
			ctx, cancel := h.releaseContext(ctx)
			defer cancel()
			_ = h.releaseNow(ctx)
		}
	})
	return nil
}

// minHoldLeft is what is left of the minimum hold. It is 0 for a hold that was lost.
func (h *hold) minHoldLeft() time.Duration {
	if h.lock.minHold == 0 || h.skipsMinHold.Load() || h.overBy(ErrLost) {
		return 0
	}
	return h.lock.minHold - h.age()
}

// splitResting divides holds into those whose minimum hold is not over and the others.
func splitResting(holds []*hold) (resting, others []*hold) {
	for _, h := range holds {
		if h.minHoldLeft() > 0 {
			resting = append(resting, h)
		} else {
			others = append(others, h)
		}
	}
	return resting, others
}

// startMinHold makes this process keep h, which is over, for what is left of its
// minimum hold, if the server cannot. The caller holds h.mu.
func (h *hold) startMinHold() {
	if rest := h.minHoldLeft(); rest > 0 && !h.lock.client.expires(rest) {
		h.minHoldEnd = make(chan struct{})
	}
}

// minHoldState returns the channel that is closed when this process need not keep the
// hold any more, nil if it never had to, and whether the hold was lost.
func (h *hold) minHoldState() (resting <-chan struct{}, lost bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.minHoldEnd, h.overBy(ErrLost)
}

// endMinHold ends the minimum hold. A loss that is not nil says that the server has
// taken the hold away. It reports false if there was none to end.
func (h *hold) endMinHold(loss *reason) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.minHoldEnd == nil {
		return false
	}
	if loss != nil {
		h.over.Store(loss) // the leases keep their own reason
	}
	close(h.minHoldEnd)
	h.minHoldEnd = nil
	return true
}
