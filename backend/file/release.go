package file

import (
	"context"
	"errors"

	"github.com/dlock-go/dlock/backend"
)

// Release implements backend.Backend.
func (b *Backend) Release(_ context.Context, bh *backend.Hold) error {
	h := bh.State.(*hold)
	err := h.release()
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.holds, h)
	return err
}

// release ends the hold, and reports ErrLost if it was over before.
func (h *hold) release() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	err := h.check()
	if h.over {
		return err
	}
	h.over = true
	if err == nil {
		_ = h.writeTokens(0)
	}
	h.withdraw(h.label)
	unlockWhole(h.file)
	h.close(heldByte)
	if errors.Is(err, backend.ErrLost) {
		return err
	}
	return nil
}

// check reports ErrLost if the hold is over or its file was replaced. It
// is called with h.mu held.
func (h *hold) check() error {
	if h.over {
		return backend.ErrLost
	}
	if err := h.checkCurrent(); !errors.Is(err, errReplaced) {
		return err
	}
	return backend.Fail(backend.ErrLost, errReplaced)
}
