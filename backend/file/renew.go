package file

import (
	"context"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// Renew implements backend.Renewer. It finds out whether somebody has deleted
// or replaced the lock file.
func (b *Backend) Renew(_ context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	for _, bh := range holds {
		sent := time.Now()
		err := bh.State.(*hold).renew()
		if err == nil {
			bh.Sent = sent
		}
		report(bh, err)
	}
}

func (h *hold) renew() error {
	h.tellWanted()
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.check(); err != nil || h.limit.Load()-h.last.Load() > reserve/2 {
		return err
	}
	return h.writeTokens(reserve)
}

// tellWanted tells the holder once that somebody waits.
func (h *hold) tellWanted() {
	h.mu.Lock()
	wanted := false
	if !h.over && !h.wanted {
		_, length, err := findLock(h.lockFile, backend.Exclusive, firstPosition, lastPosition)
		wanted = err == nil && length == 1 // more is of another program
		h.wanted = wanted
	}
	h.mu.Unlock()
	if wanted {
		h.request.Wanted()
	}
}

// Downgrade implements backend.Downgrader.
func (b *Backend) Downgrade(_ context.Context, bh *backend.Hold) error {
	return bh.State.(*hold).downgrade()
}

// downgrade makes the hold shared and wakes the readers that wait. Byte 0 stays locked
// throughout: if the lock of the whole file should be free for a moment, a writer who
// takes it is still refused, and lets go of it again.
func (h *hold) downgrade() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.check(); err != nil {
		return err
	}
	if err := h.writeTokens(0); err != nil { // readers share the token
		return err
	}
	if _, err := lockByte(h.lockFile, backend.Shared, heldByte); err != nil {
		return err
	}
	for limit := time.Now().Add(time.Second); ; time.Sleep(time.Millisecond) {
		ok, err := lockWhole(h.file, backend.Shared)
		switch {
		case err != nil:
			return err
		case ok:
			h.wakeWaiters()
			return nil
		case time.Now().After(limit):
			return backend.Fail(backend.ErrLost, fmt.Errorf("%s: another program locked it", h.path()))
		}
	}
}
