package redis

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// Expire implements backend.Expirer. Who waits is let in when the time has passed: the
// head of the queue knows that time, or learns it from this client's watch.
func (b *Backend) Expire(ctx context.Context, h *backend.Hold, d time.Duration) error {
	s := stateOf(h)
	tomb := 0
	if s.is(doubted) {
		tomb = 1
	}
	// The server's time has lost a part of a millisecond.
	call := expireScript.of(s.key(), 5, s.id(), millis(max(d, 0))+1, s.used.Load(), tomb)
	defer b.hub.discard(s)
	a, err := b.prove(ctx, h, expireScript, call)
	if err != nil {
		return err
	}
	b.after(s.key(), a)
	return nil
}
