package redisson

import (
	"context"

	"github.com/dlock-go/dlock"
	"github.com/redis/go-redis/v9"
)

// Both does the work beside Java programs that hold the RLock of that name.
func Both(ctx context.Context, client *dlock.Client, rdb *redis.Client, name string, work func(context.Context) error) error {
	return dlock.Do(ctx, client.Mutex(name), func(ctx context.Context, _ *dlock.Lease) error {
		return UnderRLock(ctx, rdb, name, work)
	})
}
