package memory

import (
	"cmp"
	"context"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// Release implements backend.Backend.
func (b *Backend) Release(ctx context.Context, h *backend.Hold) error {
	return b.update(ctx, h, end)
}

// ReleaseAll implements backend.BatchReleaser, with one request.
func (b *Backend) ReleaseAll(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	ctx, cancel := backend.BoundAll(ctx, holds)
	defer cancel()
	outcomes := make([]error, len(holds))
	lost := b.exchange(ctx, func() error {
		for i, h := range holds {
			outcomes[i] = b.server.release(h)
		}
		return nil
	})
	for i, h := range holds {
		report(h, cmp.Or(lost, outcomes[i]))
	}
}

// release ends h, and reports ErrLost if it had ended before.
func (s *Server) release(h *backend.Hold) error {
	return s.update(h, end)
}

func end(l *lock, h *hold, _ time.Duration) { l.remove(h) }

// Expire implements backend.Expirer.
func (b *Backend) Expire(ctx context.Context, h *backend.Hold, d time.Duration) error {
	return b.update(ctx, h, func(_ *lock, h *hold, now time.Duration) {
		h.expires = now + d
		h.client, h.hold.Observer = nil, nil // its client may close
	})
}
