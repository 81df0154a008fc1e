package redis

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/server"
)

// TestLockOnAReplicaForAMoment has a server be a replica for a moment, as in a failover behind an
// address that stays. A Lock that begins meanwhile is made again, and a hold goes on.
func TestLockOnAReplicaForAMoment(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	s := server.Start(t, server.Redis{})
	admin, c := plainClient(t, s), openClient(t, s, &dlock.Options{TTL: 10 * time.Second})
	held := must[*dlock.Lease](t)(c.Mutex("held").Lock(ctx))
	must[any](t)(admin.Do(ctx, "replicaof", "127.0.0.1", "1").Result())
	time.AfterFunc(time.Second, func() {
		if err := redis.NewClient(&redis.Options{Addr: s.Addr(), DisableIdentity: true}).Do(context.Background(), "replicaof", "no", "one").Err(); err != nil {
			t.Error(err)
		}
	})
	began := time.Now()
	if l, err := c.Mutex("x").Lock(ctx); err != nil {
		t.Errorf("Lock has failed after %v: %v", time.Since(began), err)
	} else {
		must[any](t)(nil, l.Unlock(ctx))
	}
	must[any](t)(nil, held.Unlock(ctx))
}
