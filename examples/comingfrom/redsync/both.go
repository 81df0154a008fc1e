package redsync

import (
	"context"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/go-redsync/redsync/v4"
)

// Both is the version in between.
func Both(ctx context.Context, client *dlock.Client, rs *redsync.Redsync, name string, work func(context.Context) error) error {
	return dlock.Do(ctx, client.Mutex(name, dlock.WithTTL(8*time.Second)), func(ctx context.Context, _ *dlock.Lease) error {
		return Before(ctx, rs, name, work)
	})
}
