package memory

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// Renew implements backend.Renewer.
func (b *Backend) Renew(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	sent := time.Now()
	if err := b.send(ctx); err != nil {
		for _, h := range holds {
			report(h, err)
		}
		return
	}
	outcomes := make([]error, len(holds))
	for i, h := range holds {
		outcomes[i] = b.server.update(h, func(_ *lock, h *hold, now time.Duration) { h.extend(now) })
	}
	late := b.faults.delayReply(ctx, b.closed)
	for i, h := range holds {
		switch {
		case late != nil:
			outcomes[i] = late
		case outcomes[i] == nil:
			h.Sent = sent
		}
		report(h, outcomes[i])
	}
}

// Reenter implements backend.Reenterer. A newer count of entries may have overtaken
// this one.
func (b *Backend) Reenter(ctx context.Context, h *backend.Hold, entries int, seq int64) error {
	fixed := h.Fixed
	return b.update(ctx, h, func(_ *lock, h *hold, now time.Duration) {
		if seq > h.seq {
			h.seq, h.entries = seq, entries
		}
		if !fixed {
			h.extend(now)
		}
	})
}

// RaiseToken implements backend.TokenRegister.
func (b *Backend) RaiseToken(ctx context.Context, h *backend.Hold, token uint64) error {
	return b.update(ctx, h, func(l *lock, h *hold, _ time.Duration) {
		b.server.token = max(b.server.token, token)
		l.phase, h.token = max(l.phase, token), max(h.token, token)
	})
}

// LowerToken implements backend.TokenRegister.
func (b *Backend) LowerToken(ctx context.Context, h *backend.Hold, token uint64) error {
	return b.update(ctx, h, func(_ *lock, h *hold, _ time.Duration) { h.token = token })
}

// Downgrade implements backend.Downgrader.
func (b *Backend) Downgrade(ctx context.Context, h *backend.Hold) error {
	return b.update(ctx, h, func(l *lock, h *hold, _ time.Duration) {
		if l.writer == h {
			l.writer, l.phase, h.mode = nil, h.token, backend.Shared
			l.add(h)
		}
	})
}

// Transfer implements backend.Transferer.
func (b *Backend) Transfer(bh *backend.Hold) (token uint64, ok bool) {
	s := b.server
	s.mu.Lock()
	defer s.mu.Unlock()
	h := bh.State.(*hold)
	if l := s.locks[bh.Name]; l == nil || l.writer != h {
		return 0, false
	}
	s.token++
	s.drawn, h.token, h.entries = s.token, s.token, 1
	return s.token, true
}
