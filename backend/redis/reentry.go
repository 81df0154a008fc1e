package redis

import (
	"context"

	"github.com/dlock-go/dlock/backend"
)

// Reenter implements backend.Reenterer. The server keeps the count of an
// exclusive hold; that of a reader is known here alone.
func (b *Backend) Reenter(ctx context.Context, h *backend.Hold, entries int, seq int64) error {
	s := stateOf(h)
	call := enterScript.of(s.key(), 2, s.id(), extension(h), entries, seq)
	a, err := b.insist(ctx, h.TTL, enterScript, call, nil)
	switch {
	case err != nil:
		return err
	case a.int(1) <= 0: // there is always the time
		return fail(errGarbled)
	case a.int(0) == 0:
		return backend.ErrLost
	}
	return nil
}

// Downgrade implements backend.Downgrader.
func (b *Backend) Downgrade(ctx context.Context, h *backend.Hold) error {
	s := stateOf(h)
	s.note(shares, true)
	call := downgradeScript.of(s.key(), 5, s.id(), extension(h), s.used.Load())
	a, err := b.prove(ctx, h, downgradeScript, call)
	if err == nil {
		b.after(s.key(), a)
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

// prove runs a call about h, which may be repeated, until it is answered.
func (b *Backend) prove(ctx context.Context, h *backend.Hold, s *script, call []any) (answer, error) {
	a, err := b.insist(ctx, h.TTL, s, call, nil)
	if err != nil {
		return a, err
	}
	switch a.status() {
	case "OK":
		return a, nil
	case "LOST":
		return a, backend.ErrLost
	}
	return a, fail(errGarbled)
}
