package dlock

import (
	"context"
	"errors"
	"sync"
	"time"
	"weak"

	"github.com/dlock-go/dlock/backend"
)

// cleanUp releases holds that are over. A renewal under way may have revived them on
// the server, and a lock may have been granted to a call that Close has ended.
func (c *Client) cleanUp(holds ...*hold) {
	if !c.cleanups.add(&c.janitor, c.cleanUpNow, holds) {
		c.late.Go(func(ctx context.Context) { c.cleanUpNow(ctx, holds) })
	}
}

// cleanUpNow tries once to release holds that are over, and then frees their names. A
// hold that the server does not know counts as released. Holds that the server did not
// answer for are retried by other workers, so that they delay nobody.
func (c *Client) cleanUpNow(ctx context.Context, holds []*hold) {
	calm, cancel := backend.Bound(ctx, longestTTL(holds))
	defer cancel()
	c.keeper.AwaitCalm(calm)
	if rest := c.tryReleases(ctx, holds); len(rest) > 0 && !c.retries.add(&c.janitor, c.retryReleases, rest) {
		c.retryReleases(ctx, rest)
	}
}

// retryReleases releases holds for which the first attempt had no answer. It gives up
// after the longest TTL.
func (c *Client) retryReleases(ctx context.Context, holds []*hold) {
	lasting, cancel := backend.Bound(ctx, longestTTL(holds))
	defer cancel()
	defer func() {
		if ctx.Err() == nil { // Close has not ended it: the TTL of what is left is over
			c.noteUnconfirmed(false, holds...)
		}
	}()
	backend.Retry(lasting, func(ctx context.Context) error {
		if holds = c.tryReleases(ctx, holds); len(holds) > 0 {
			return ErrUnavailable
		}
		return nil
	})
}

// tryReleases releases holds, and returns those for which the server gave no answer, and may
// give one.
func (c *Client) tryReleases(ctx context.Context, holds []*hold) (rest []*hold) {
	bounded := limitFirstAnswer(ctx, longestTTL(holds))
	defer bounded.stop()
	var mu sync.Mutex
	c.releaseHolds(bounded, holds, func(h *hold, err error) {
		c.removeHold(h)
		switch {
		case err == nil, errors.Is(err, ErrLost):
			c.noteUnconfirmed(false, h)
		case errors.Is(err, ErrClosed): // nothing can tell the server any more, which ends the hold by itself
			forgetLater(h)
		default:
			mu.Lock()
			defer mu.Unlock()
			rest = append(rest, h)
		}
	})
	return rest
}

// forgetLater has Close not name h when its TTL is over. Until then it keeps neither h nor the client.
func forgetLater(h *hold) {
	kept := weak.Make(h)
	time.AfterFunc(h.item.Hold.TTL, func() {
		if h := kept.Value(); h != nil {
			h.lock.client.noteUnconfirmed(false, h)
		}
	})
}

func longestTTL(holds []*hold) (longest time.Duration) {
	for _, h := range holds {
		longest = max(longest, h.item.Hold.TTL)
	}
	return longest
}

// A batcher collects holds, and has a few goroutines do something for them. Each takes
// all holds that have come so far. The zero value is ready to use.
type batcher struct {
	mu      sync.Mutex
	waiting []*hold
	workers int
}

// maxWorkers is how many goroutines a batcher has at most. With several, a server or a
// hook that does not return holds up only the holds of one batch.
const maxWorkers = 16

// add has do be called for holds, with others. It reports false, and does nothing,
// if j is closed.
func (b *batcher) add(j *backend.Janitor, do func(context.Context, []*hold), holds []*hold) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = append(b.waiting, holds...)
	if b.workers == maxWorkers {
		return true
	}
	if !j.Go(func(ctx context.Context) { b.work(ctx, do) }) {
		b.waiting = b.waiting[:len(b.waiting)-len(holds)]
		return false
	}
	b.workers++
	return true
}

func (b *batcher) work(ctx context.Context, do func(context.Context, []*hold)) {
	for {
		b.mu.Lock()
		batch := b.waiting
		b.waiting = nil
		if len(batch) == 0 {
			b.workers--
			b.mu.Unlock()
			return
		}
		b.mu.Unlock()
		do(ctx, batch)
	}
}
