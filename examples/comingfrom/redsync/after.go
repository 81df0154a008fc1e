package redsync

import (
	"context"
	"time"

	"github.com/dlock-go/dlock"
)

// After does the same with this library.
func After(ctx context.Context, client *dlock.Client, name string, work func(context.Context) error) error {
	return dlock.Do(ctx, client.Mutex(name, dlock.WithTTL(8*time.Second)), func(ctx context.Context, _ *dlock.Lease) error {
		return work(ctx)
	})
}
