package redis

import (
	"context"

	"github.com/dlock-go/dlock/backend"
)

// Reenter implements backend.Reenterer. The server keeps the count of an
// exclusive hold; that of a reader is known here alone.
func (b *Backend) Reenter(ctx context.Context, h *backend.Hold, entries int, seq int64) error {
	args := []any{keep.Milliseconds(), h.State.(*state).id, extension(h), entries, seq}
	_, err := b.prove(ctx, h, enterScript, lockKeys(h.Name)[:2], args)
	return err
}

// Downgrade implements backend.Downgrader.
func (b *Backend) Downgrade(ctx context.Context, h *backend.Hold) error {
	args := append(b.common(), h.State.(*state).id, extension(h))
	k := lockKeys(h.Name)
	a, err := b.prove(ctx, h, downgradeScript, k[:4], args)
	if err == nil {
		b.after(k, a)
	}
	return err
}

// extension is how many ms from now a hold is kept at least: a fixed one is
// not extended.
func extension(h *backend.Hold) int64 {
	if h.Fixed {
		return 0
	}
	return millis(h.TTL)
}

// prove runs a script about h, which may be repeated, until it is answered.
func (b *Backend) prove(ctx context.Context, h *backend.Hold, s *script, names, args []any) (answer, error) {
	a, err := b.insist(ctx, h.TTL, s, names, args, nil)
	if err != nil {
		return a, err
	}
	if a.status() != "OK" {
		return a, backend.ErrLost
	}
	return a, nil
}
