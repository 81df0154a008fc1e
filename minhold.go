package dlock

import (
	"context"
	"time"
)

// release ends h after its last lease was unlocked. For the rest of the shortest time
// for which it must be held the server keeps it, or this process does.
func (h *hold) releaseAfterMinHold(ctx context.Context) error {
	resting, lost := h.minHoldState()
	switch {
	case lost:
		return ErrLost // and was given back
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

// rest is what is left of the shortest time for which h must be held. One that was
// lost need not be.
func (h *hold) minHoldLeft() time.Duration {
	if h.lock.minHold == 0 || h.skipsMinHold.Load() || h.overBy(ErrLost) {
		return 0
	}
	return h.lock.minHold - h.age()
}

// beginRest notes that this process is to keep h, which is over, for what is left of
// the shortest time. It is called with h.mu held.
func (h *hold) startMinHold() {
	if rest := h.minHoldLeft(); rest > 0 && !h.lock.client.expires(rest) {
		h.minHoldEnd = make(chan struct{})
	}
}

func (h *hold) minHoldState() (resting <-chan struct{}, lost bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.minHoldEnd, h.overBy(ErrLost)
}

// endRest ends the rest of h, with a loss unless that is nil: then the lock is nobody's
// from now on. It reports false if h does not rest.
func (h *hold) endMinHold(loss *reason) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.minHoldEnd == nil {
		return false
	}
	if loss != nil {
		h.over.Store(loss) // the leases have noted why they ended
	}
	close(h.minHoldEnd)
	h.minHoldEnd = nil
	return true
}
