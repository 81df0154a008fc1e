package redisson

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	_ "github.com/dlock-go/dlock/backend/redis"
	"github.com/dlock-go/dlock/examples/comingfrom/internal/changeover"
	"github.com/dlock-go/dlock/internal/server"
)

func connect(t *testing.T, addr string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { c.Close() })
	return c
}

// versions are those of the page; the program before is in Go here.
func versions(t *testing.T, addr string) changeover.Versions {
	admin := connect(t, addr)
	v := changeover.Versions{
		New:     changeover.Open(t, "redis://"+addr),
		TakeOld: func(ctx context.Context, name string) error { return admin.Del(ctx, name).Err() },
	}
	for i := range 2 {
		client, rdb := changeover.Open(t, "redis://"+addr), connect(t, addr)
		v.Before[i], v.Both[i], v.After[i] = changeover.Process(client, rdb, UnderRLock, Both, After)
	}
	return v
}

func TestChangeOver(t *testing.T) {
	t.Parallel()
	if err := versions(t, server.Start(t, server.Redis{}).Addr()).Check(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Work that does not look is told at its end.
func TestLossUnawares(t *testing.T) {
	t.Parallel()
	v := versions(t, server.Start(t, server.Redis{}).Addr())
	if err := changeover.Unaware(t.Context(), v.Both[0], v.TakeOld); err != nil {
		t.Error(err)
	}
}

// A name with a hash tag has its channel in the same slot, as Redisson has it.
func TestChannel(t *testing.T) {
	for name, want := range map[string]string{
		"orders/42":   "redisson_lock__channel:{orders/42}",
		"{orders}/42": "redisson_lock__channel:{orders}/42",
	} {
		if got := channel(name); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
}
