package medallion

import (
	"context"

	"github.com/dlock-go/dlock"
)

// After does the work once no .NET program has the advisory lock any more.
func After(ctx context.Context, client *dlock.Client, name string, work func(context.Context) error) error {
	return dlock.Do(ctx, client.Mutex(name), func(ctx context.Context, _ *dlock.Lease) error {
		return work(ctx)
	})
}
