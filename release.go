package dlock

import (
	"context"

	"github.com/dlock-go/dlock/backend"
)

// unlock takes the entry off its hold. The last one off releases the lock.
func (e *entry) unlock(ctx context.Context) error {
	ctx, cancel := e.hold.releaseContext(ctx)
	defer cancel()
	if last, err := e.leaveHold(ctx); !last {
		return err
	}
	return e.hold.releaseAfterMinHold(ctx)
}

// releaseAfterMinHold releases h after its last lease was unlocked. If its minimum
// hold is not over, the server keeps the hold for that long, or this process does.
func (h *hold) releaseAfterMinHold(ctx context.Context) error {
	switch kept, lost := h.minHoldState(); {
	case lost:
		return ErrLost // and cleanup releases it
	case kept:
		return nil // and keepMinHold releases it
	}
	return h.releaseNow(ctx)
}

// skipMinHold has the hold be released without waiting for its minimum, if e has taken it.
func (e *entry) skipMinHold() {
	if e.parent == nil {
		e.hold.skipsMinHold.Store(true)
	}
}

// leaveHold removes the lease from its hold. It reports whether it was the last one,
// so that the caller must release the hold.
func (e *entry) leaveHold(ctx context.Context) (last bool, err error) {
	h := e.hold
	left, seq, over := h.removeLease(e)
	e.endGroup()
	switch {
	case over != nil:
		return false, over
	case left == 0:
		return true, nil
	}
	return false, e.tellServer(ctx, left, seq)
}

// tellServer tells the server that one of several leases on a hold has ended.
func (e *entry) tellServer(ctx context.Context, left int, seq int64) error {
	h := e.hold
	if e.parent == nil && !h.hasNested() {
		return nil // other readers share the hold
	}
	defer e.lock.client.leaveParent(e)
	err := h.reportEntries(ctx, left, seq)
	if isLoss(err) && (h.overBy(ErrUnlocked) || h.overBy(ErrClosed)) {
		return nil // the release came first: of the last lease, or by Close
	}
	return err
}

func (h *hold) hasNested() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.nested > 0
}

// releaseNow releases h. If the server does not answer, the janitor goes on trying.
func (h *hold) releaseNow(ctx context.Context) error {
	err := h.releaseOnServer(ctx)
	if !h.noteReleased(err) {
		h.logUnconfirmedRelease(err)
	}
	return err
}

// releaseOnServer releases h on the server, after the last renewal under way has
// ended.
func (h *hold) releaseOnServer(ctx context.Context) error {
	c := h.lock.client
	if !c.keeper.Remove(ctx, &h.item) {
		return backend.WaitEnded(ctx, false)
	}
	if rest := h.minHoldLeft(); rest > 0 && c.expires(rest) {
		return c.expirer.Expire(ctx, h.item.Hold, rest)
	}
	return c.backend.Release(ctx, h.item.Hold)
}

// noteReleased frees the name of h, whose release ended with err. It reports whether the
// server has confirmed that.
func (h *hold) noteReleased(err error) bool {
	c := h.lock.client
	if err == nil || isLoss(err) {
		c.removeHold(h)
		return true
	}
	c.noteUnconfirmed(true, h)
	c.cleanUp(h)
	c.removeHold(h) // last: Close may wait for it
	return false
}

// releaseContext returns the context of a release. It is ctx, or only its values if it
// is already done. Without a deadline it allows FirstAnswer, or the TTL if that is
// less.
func (h *hold) releaseContext(ctx context.Context) (context.Context, context.CancelFunc) {
	ttl := h.item.Hold.TTL
	if ctx.Err() != nil {
		return backend.Detach(ctx, min(ttl, backend.FirstAnswer))
	}
	if backend.EndsByDeadline(ctx) {
		return backend.BoundPast(ctx, min(ttl, backend.FirstAnswer))
	}
	l := limitFirstAnswer(ctx, ttl)
	return l, l.stop
}

// releaseHolds releases holds together. It calls done once for each, from any
// goroutine, before it returns.
func (c *Client) releaseHolds(ctx context.Context, holds []*hold, done func(*hold, error)) {
	if len(holds) == 1 {
		done(holds[0], holds[0].releaseOnServer(ctx))
		return
	}
	// The server keeps some for what is left of their minimum hold.
	resting, others := divide(holds, func(h *hold) bool { return h.minHoldLeft() > 0 })
	forEach(resting, func(h *hold) { done(h, h.releaseOnServer(ctx)) })
	over, cancel := context.WithCancel(ctx)
	cancel() // first those without a renewal under way
	settled, busy := divide(others, func(h *hold) bool { return c.keeper.Remove(over, &h.item) })
	c.releaseSettled(ctx, settled, done)
	settled, busy = divide(busy, func(h *hold) bool { return c.keeper.Remove(ctx, &h.item) })
	c.releaseSettled(ctx, settled, done)
	for _, h := range busy {
		done(h, backend.WaitEnded(ctx, false))
	}
}

// divide returns the holds for which is reports true, and the others.
func divide(holds []*hold, is func(*hold) bool) (yes, no []*hold) {
	for _, h := range holds {
		if is(h) {
			yes = append(yes, h)
		} else {
			no = append(no, h)
		}
	}
	return yes, no
}

// releaseSettled releases holds without a renewal under way: in batches if the backend
// can, otherwise one by one from a few goroutines.
func (c *Client) releaseSettled(ctx context.Context, holds []*hold, done func(*hold, error)) {
	if len(holds) == 0 {
		return
	}
	if c.batchReleaser == nil {
		forEach(holds, func(h *hold) { done(h, c.backend.Release(ctx, h.item.Hold)) })
		return
	}
	all := make([]*backend.Hold, len(holds))
	of := make(map[*backend.Hold]*hold, len(holds)) // not by Index, which a renewal uses
	for i, h := range holds {
		all[i] = h.item.Hold
		of[all[i]] = h
	}
	c.batchReleaser.ReleaseAll(ctx, all, func(h *backend.Hold, err error) { done(of[h], err) })
}

// releasers is how many goroutines release holds one by one.
const releasers = 32

// forEach calls f for each of holds, from a few goroutines.
func forEach(holds []*hold, f func(*hold)) {
	backend.ForEachPart(holds, 1, releasers, func(part []*hold) { f(part[0]) })
}
