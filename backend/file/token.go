package file

import (
	"time"

	"github.com/dlock-go/dlock/backend"
)

// reserve is how many tokens a hold can give out until its next renewal. They are
// microseconds: a holder who dies leaves the next token so far ahead of the clock.
const reserve = 10_000

// newToken gives the hold a new token, and reserves so many more. It grows by the
// clock, so that a file that is deleted does not send it back.
func (h *hold) newToken(more uint64) error {
	c, err := h.read()
	if err != nil {
		return err
	}
	h.token, h.skipped = max(c.token+1, uint64(time.Now().UnixMicro())), c.skipped
	if err := h.write(content{h.token + more, h.skipped}, h.owner().text()); err != nil {
		return err
	}
	h.last.Store(h.token)
	if more > 0 {
		h.limit.Store(h.token + more)
	}
	return nil
}

// phaseToken gives the hold the token of the readers whom it has just joined, or a new
// one if it is the first of them.
func (h *hold) phaseToken() error {
	joined, err := h.isHeld(backend.Exclusive)
	if err != nil {
		return err
	}
	if !joined {
		return h.newToken(0)
	}
	h.joined = true
	c, err := h.read()
	h.token = c.token
	return err
}

// Transfer implements backend.Transferer. The token is one that the file allows for
// and that is behind the clock, so that it is not forgotten with the file either.
func (b *Backend) Transfer(bh *backend.Hold) (token uint64, ok bool) {
	h := bh.State.(*hold)
	last := h.last.Load()
	if last >= h.limit.Load() || last+1 >= uint64(time.Now().UnixMicro()) {
		return 0, false
	}
	return last + 1, h.last.CompareAndSwap(last, last+1)
}

// writeTokens writes down which tokens were given out, and that so many more may be.
// It is called with h.mu held.
func (h *hold) writeTokens(more uint64) error {
	if h.limit.Load() == 0 {
		return nil
	}
	if more == 0 {
		h.limit.Store(0)
	}
	limit := h.last.Load() + more
	err := h.write(content{limit, h.skipped}, "")
	if err == nil && more > 0 {
		h.limit.Store(limit)
	}
	return err
}
