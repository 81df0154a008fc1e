package chaos

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/server"
)

// A worker that is killed leaves its hold written on the server. It counts as
// left behind while its lease lasts, and no longer.
func TestResidueOfADeadHolder(t *testing.T) {
	t.Parallel()
	s := server.Start(t, server.Redis{})
	admin := redis.NewClient(&redis.Options{Addr: s.Addr(), DisableIdentity: true})
	t.Cleanup(func() { _ = admin.Close() })
	client, err := dlock.Open(t.Context(), "redis://"+s.Addr(), nil)
	must(t, err)
	t.Cleanup(func() { _ = client.Close(context.WithoutCancel(t.Context())) })
	lease, err := client.Mutex("job").Lock(t.Context())
	must(t, err)

	left, err := redisResidue(t.Context(), admin)
	if must(t, err); !slices.Contains(left, "dlock:{job}") {
		t.Errorf("left while the lock is held: %v", left)
	}
	must(t, admin.HSet(t.Context(), "dlock:{job}", "e", time.Now().Add(-time.Hour).UnixMilli()).Err())
	left, err = redisResidue(t.Context(), admin)
	if must(t, err); slices.Contains(left, "dlock:{job}") {
		t.Errorf("left when the lease is over: %v", left)
	}
	must(t, admin.Persist(t.Context(), "dlock:{job}").Err())
	left, err = redisResidue(t.Context(), admin)
	if must(t, err); !slices.Contains(left, "dlock:{job}") {
		t.Errorf("a key without TTL is not left: %v", left)
	}
	must(t, admin.FlushAll(t.Context()).Err())
	_ = lease.Unlock(t.Context()) // the key is gone
}
