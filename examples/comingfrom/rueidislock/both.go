package rueidislock

import (
	"context"

	"github.com/dlock-go/dlock"
	"github.com/redis/rueidis/rueidislock"
)

// Both is the version in between.
func Both(ctx context.Context, client *dlock.Client, locker rueidislock.Locker, name string, work func(context.Context) error) error {
	return dlock.Do(ctx, client.Mutex(name), func(ctx context.Context, _ *dlock.Lease) error {
		return Before(ctx, locker, name, work)
	})
}
