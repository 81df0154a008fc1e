package medallion

import (
	"context"

	"github.com/dlock-go/dlock"
)

// Both does the work beside .NET programs that hold the lock of that name.
func Both(ctx context.Context, client *dlock.Client, url, name string, work func(context.Context) error) error {
	return dlock.Do(ctx, client.Mutex(name), func(ctx context.Context, _ *dlock.Lease) error {
		return UnderAdvisoryLock(ctx, url, Key(name), work)
	})
}
