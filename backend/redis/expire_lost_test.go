package redis

import (
	"bytes"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
)

// TestExpireOfALostHold loses a hold, and the answer that says so. When Expire asks again, the time
// for which the lock was to be kept has only just begun: nothing but a loss explains that it is
// not there, and somebody else may have it.
func TestExpireOfALostHold(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	proxy := proxied(t)
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr(), DisableIdentity: true})
	t.Cleanup(func() { _ = client.Close() })
	b, other := New(client, nil), newBackend(t, plainClient(t, shared), nil)
	t.Cleanup(func() { _ = b.Close(within(t)) })
	h := must[*backend.Hold](t)(b.Acquire(ctx, requestOf(t, "client", backend.Exclusive)))
	must[any](t)(nil, other.Break(ctx, h.Name, h.Token))
	must[*backend.Hold](t)(other.Acquire(ctx, requestOf(t, "other", backend.Exclusive)))
	drop := proxy.DropReplyAfter(func(req []byte) bool { return bytes.Contains(req, []byte("expiring")) })
	err := b.Expire(ctx, h, time.Minute)
	if !drop.Answered() {
		t.Fatal("the answer was not lost")
	}
	is(t, err, backend.ErrLost)
}
