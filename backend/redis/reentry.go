package redis

import (
	"context"
	"errors"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// Reenter implements backend.Reenterer. The server keeps the count of an
// exclusive hold; that of a reader is known here alone.
func (b *Backend) Reenter(ctx context.Context, h *backend.Hold, entries int, seq int64) error {
	s := stateOf(h)
	call := enterScript.callWith(s.key(), 2, s.id, extension(h), entries, seq)
	a, err := b.runUntilAnswered(ctx, h.TTL, enterScript, call, nil)
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
	s.shared.Store(true)
	return b.convert(ctx, h, "shared", extension(h), 0, nil)
}

// Expire implements backend.Expirer. Who waits is let in when the time has passed: the
// head of the queue knows that time, or learns it from this client's watch.
func (b *Backend) Expire(ctx context.Context, h *backend.Hold, d time.Duration) error {
	s := stateOf(h)
	tomb := 0
	if s.doubted.Load() {
		tomb = 1
	}
	defer b.listener.removeHold(s)
	repeated, began := false, time.Now()
	ms := millis(max(d, 0)) + 1 // the server's time has lost a part of one
	err := b.convert(ctx, h, "expiring", ms, tomb, func(err error) {
		repeated = repeated || !isUntouched(err)
	})
	isOver := time.Since(began) >= d-backend.Margin(d)
	if errors.Is(err, backend.ErrLost) && repeated && isOver && time.Now().Before(s.leaseEnd()) {
		return nil // an earlier request had it end, and so it has
	}
	return err
}

// convert makes of h another kind of hold. onError is called before the request is repeated.
func (b *Backend) convert(ctx context.Context, h *backend.Hold, kind string, ms int64, tomb int, onError func(error)) error {
	s := stateOf(h)
	call := convertScript.callWith(s.key(), 5, s.id, kind, ms, s.used.Load(), tomb)
	a, err := b.change(ctx, h, convertScript, call, onError)
	if err == nil {
		b.checkLater(s.key(), a)
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

// change runs a call about h, which may be repeated, until the server has said OK or
// that h is lost.
func (b *Backend) change(ctx context.Context, h *backend.Hold, s *script, call []any, onError func(error)) (answer, error) {
	a, err := b.runUntilAnswered(ctx, h.TTL, s, call, onError)
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
