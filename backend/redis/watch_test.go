package redis

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
)

// TestReleaserLooksAfterTheNext hands a lock to one who listens and then says
// nothing. Who is behind it in the queue cannot know, and nobody else asks: it
// is up to the client that has let go of the lock.
func TestReleaserLooksAfterTheNext(t *testing.T) {
	ctx := within(t)
	lease := must[*dlock.Lease](t)(openClient(t, shared, nil).Mutex(t.Name()).Lock(ctx))

	c := plainClient(t, shared)
	listener := c.Subscribe(ctx, channelPrefix+t.Name())
	defer listener.Close()
	must[any](t)(listener.Receive(ctx))
	silent := []string{"w100:" + t.Name() + ":1", "w100:" + t.Name() + ":2"}
	for _, id := range silent {
		call := acquireScript.call(lockKey(t.Name()).args(5), id, 100, "w")
		call[0], call[1] = "eval", acquireScript.source
		must[any](t)(c.Do(ctx, call...).Result())
	}
	must[any](t)(nil, lease.Unlock(ctx))
	messages := listener.Channel()
	for _, id := range silent {
		awaitGrant(t, messages, id)
	}
}

// TestSoonerCheckCounts plans a check for later than another one that is to come, as
// for a grant that nobody may confirm and then for a hold that ends by itself.
func TestSoonerCheckCounts(t *testing.T) {
	b := New(plainClient(t, shared), nil)
	t.Cleanup(func() { _ = b.Close(context.Background()) })
	k := lockKey(t.Name())
	b.watch.plan(b, k, time.Hour)
	b.watch.plan(b, k, time.Millisecond)
	b.watch.plan(b, k, time.Hour)
	eventually(t, "the sooner check", func() bool {
		b.watch.mu.Lock()
		defer b.watch.mu.Unlock()
		return len(b.watch.timers) == 0
	})
}

// awaitGrant waits until the lock is handed to id.
func awaitGrant(t *testing.T, messages <-chan *redis.Message, id string) {
	t.Helper()
	ctx := within(t)
	for {
		select {
		case m := <-messages:
			if strings.HasPrefix(m.Payload, id+" ") {
				return
			}
		case <-ctx.Done():
			t.Fatalf("the lock was never handed to %s", id)
		}
	}
}
