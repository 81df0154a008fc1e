package dlock

import (
	"context"
	"time"
)

// release ends h after its last lease was unlocked. For the rest of the shortest time
// for which it must be held the server keeps it, or this process does.
func (h *hold) release(ctx context.Context) error {
	resting, lost := h.restNow()
	switch {
	case lost:
		return ErrLost // and was given back
	case resting == nil:
		return h.releaseNow(ctx)
	}
	h.lock.client.rests.Go(func(ctx context.Context) {
		t := time.NewTimer(h.rest())
		defer t.Stop()
		select {
		case <-t.C:
		case <-resting:
			return
		case <-ctx.Done():
			return
		}
		if h.endRest(nil) {
			ctx, cancel := h.usable(ctx)
			defer cancel()
			_ = h.releaseNow(ctx)
		}
	})
	return nil
}

// rest is what is left of the shortest time for which h must be held. One that was
// lost need not be.
func (h *hold) rest() time.Duration {
	if h.lock.minHold == 0 || h.brief.Load() || h.overBy(ErrLost) {
		return 0
	}
	return h.lock.minHold - h.held()
}

// beginRest notes that this process is to keep h, which is over, for what is left of
// the shortest time. It is called with h.mu held.
func (h *hold) beginRest() {
	if rest := h.rest(); rest > 0 && !h.lock.client.expires(rest) {
		h.resting = make(chan struct{})
	}
}

func (h *hold) restNow() (resting <-chan struct{}, lost bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.resting, h.overBy(ErrLost)
}

// endRest ends the rest of h, with a loss unless that is nil: then the lock is nobody's
// from now on. It reports false if h does not rest.
func (h *hold) endRest(loss *reason) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.resting == nil {
		return false
	}
	if loss != nil {
		h.over.Store(loss) // the leases have noted why they ended
	}
	close(h.resting)
	h.resting = nil
	return true
}
