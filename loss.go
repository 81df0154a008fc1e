package dlock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/keepalive"
)

// Lost implements backend.Observer.
func (h *hold) Lost(cause error) {
	if h.Over(cause) {
		h.lock.client.report(h)
	}
}

// Over implements keepalive.Owner: it ends all leases with ErrLost, or the rest of the
// hold when they have ended. A loss before the hold is live is for begin to see.
func (h *hold) Over(cause error) bool {
	loss := &reason{ErrLost, without(ErrLost, cause)}
	return (h.finish(loss) || h.endRest(loss)) && h.isLive()
}

// reportLost takes from the keeper what is over.
func (c *Client) reportLost(lost []keepalive.Loss) {
	holds := make([]*hold, len(lost))
	for i, l := range lost {
		holds[i] = l.Owner.(*hold)
	}
	c.report(holds...)
}

// report has the logger and the hook be told of holds that were lost, and sees to
// it that nothing of them stays on the server, nor of the other locks that are
// nothing worth without them.
func (c *Client) report(holds ...*hold) {
	if !c.losses.add(&c.janitor, c.tellLost, holds) {
		c.tellLost(context.Background(), holds)
	}
	c.abandon(holds...)
	for _, h := range holds {
		h.mu.Lock()
		open := h.leases()
		h.mu.Unlock()
		for _, e := range open {
			e.leaveGroup()
		}
	}
}

func (c *Client) tellLost(_ context.Context, holds []*hold) {
	for _, h := range holds {
		r := h.over.Load()
		c.complain("lock lost", h.lock.name(), r.by)
		h.tell(c.opts.Hooks.Lost, newError("hold", h.lock.name(), r.err()))
	}
}

// abandon clears up after holds that are over: a renewal under way may have
// revived them on the server.
func (c *Client) abandon(holds ...*hold) {
	if c.leftovers.add(&c.janitor, c.clearUp, holds) {
		return
	}
	for _, h := range holds {
		c.unhang(h)
	}
}

// clearUp gives back holds that are over. One that is gone on the server is as good as
// released. The place of each is free after this attempt. Others see to those of which
// the server could not be told: they must not hold up what comes next.
func (c *Client) clearUp(ctx context.Context, holds []*hold) {
	calm, cancel := backend.Bound(ctx, longestTTL(holds))
	defer cancel()
	c.keeper.Calm(calm)
	if rest := c.attempt(ctx, holds); len(rest) > 0 && !c.stubborn.add(&c.janitor, c.insist, rest) {
		c.insist(ctx, rest)
	}
}

// insist gives back holds of which the server could not be told at first.
func (c *Client) insist(ctx context.Context, holds []*hold) {
	lasting, cancel := backend.Bound(ctx, longestTTL(holds))
	defer cancel()
	defer func() {
		if ctx.Err() == nil { // which Close ends: the server has ended what is left
			c.owes(false, holds...)
		}
	}()
	backend.Retry(lasting, func(ctx context.Context) error {
		if holds = c.attempt(ctx, holds); len(holds) > 0 {
			return ErrUnavailable
		}
		return nil
	})
}

// attempt gives back holds, and returns those of which the server could not be told.
func (c *Client) attempt(ctx context.Context, holds []*hold) (rest []*hold) {
	bounded := within(ctx, longestTTL(holds))
	defer bounded.end()
	var mu sync.Mutex
	c.giveBackAll(bounded, holds, func(h *hold, err error) {
		c.unhang(h)
		if err != nil && !errors.Is(err, ErrLost) && !errors.Is(err, ErrClosed) {
			mu.Lock()
			defer mu.Unlock()
			rest = append(rest, h)
		} else {
			c.owes(false, h)
		}
	})
	return rest
}

func longestTTL(holds []*hold) (longest time.Duration) {
	for _, h := range holds {
		longest = max(longest, h.item.Hold.TTL)
	}
	return longest
}

// giveBackAll is giveBack for each of the holds. It calls done once for each, from
// any goroutine, and returns then.
func (c *Client) giveBackAll(ctx context.Context, holds []*hold, done func(*hold, error)) {
	if len(holds) == 1 {
		done(holds[0], holds[0].giveBack(ctx))
		return
	}
	var resting []*hold // which the server is to keep for a while
	holds = slices.DeleteFunc(slices.Clone(holds), func(h *hold) bool {
		if h.rest() <= 0 {
			return false
		}
		resting = append(resting, h)
		return true
	})
	each(len(resting), releasers, func(i int) { done(resting[i], resting[i].giveBack(ctx)) })
	at, cancel := context.WithCancel(ctx)
	cancel() // the renewal of one must not hold up the others
	settled, busy := c.settled(at, holds)
	c.releaseMany(ctx, settled, done)
	settled, busy = c.settled(ctx, busy)
	c.releaseMany(ctx, settled, done)
	for _, h := range busy {
		done(h, backend.WaitEnded(ctx, false))
	}
}

// settled tells the holds of which no renewal is under way any more from those that
// are not settled when ctx ends.
func (c *Client) settled(ctx context.Context, holds []*hold) (settled, busy []*hold) {
	for _, h := range holds {
		if c.keeper.Remove(ctx, &h.item) {
			settled = append(settled, h)
		} else {
			busy = append(busy, h)
		}
	}
	return settled, busy
}

// releaseMany releases holds with few requests, where the backend can do that, or by
// few goroutines.
func (c *Client) releaseMany(ctx context.Context, holds []*hold, done func(*hold, error)) {
	if len(holds) == 0 {
		return
	}
	if c.batchReleaser == nil {
		each(len(holds), releasers, func(i int) { done(holds[i], c.backend.Release(ctx, holds[i].item.Hold)) })
		return
	}
	all := make([]*backend.Hold, len(holds))
	of := make(map[*backend.Hold]*hold, len(holds)) // and not by Index: a renewal may be under way
	for i, h := range holds {
		all[i] = h.item.Hold
		of[all[i]] = h
	}
	c.batchReleaser.ReleaseAll(ctx, all, func(h *backend.Hold, err error) { done(of[h], err) })
}

// releasers is how many goroutines release holds one by one.
const releasers = 32

// each calls f for 0 to n-1 from up to so many goroutines, and waits for all.
func each(n, workers int, f func(int)) {
	var all sync.WaitGroup
	next := make(chan int)
	for range min(n, workers) {
		all.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	all.Wait()
}

// A batcher has something done for holds by a few goroutines. Each takes the holds
// that have come until then. The zero value is ready to use.
type batcher struct {
	mu      sync.Mutex
	waiting []*hold
	workers int
}

// maxWorkers is how many batches of one kind are worked on at a time. One that meets a
// server, or a hook, which does not return does not hold up those after it.
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
