package redis

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// pulse is how long a subscription may be silent before it is asked whether it lives,
// and then again before it is given up.
const pulse = 5 * time.Second

// A hearing counts what comes in on one connection of a subscription.
type hearing struct{ count atomic.Int64 }

// watch ends the connection if nothing comes through, not even the answer to PING,
// while somebody waits for a message.
func (h *hearing) watch(ctx context.Context, ps *redis.PubSub, every time.Duration, wanted func() bool) {
	t := time.NewTicker(every)
	defer t.Stop()
	asked, last := false, int64(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		n := h.count.Load()
		silent := n == last && wanted()
		if silent && asked {
			_ = ps.Close()
			return
		}
		if asked, last = silent, n; silent {
			_ = guard(func() error { return ps.Ping(ctx) }) // a failure shows at the next read
		}
	}
}

// anybodyAt reports whether somebody waits for a message at an address.
func (h *hub) anybodyAt(is func(address) bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.waiters {
		if is(w.at) {
			return true
		}
	}
	return false
}
