package redislock

import (
	"context"
	"time"

	"github.com/bsm/redislock"
	"github.com/dlock-go/dlock"
)

// Both is the version in between.
func Both(ctx context.Context, client *dlock.Client, locker *redislock.Client, name string, work func(context.Context) error) error {
	mutex := client.Mutex(name, dlock.WithTTL(6*time.Second), dlock.WithMaxWait(time.Minute))
	return dlock.Do(ctx, mutex, func(ctx context.Context, _ *dlock.Lease) error {
		return Before(ctx, locker, name, work)
	})
}
