package rueidislock

import (
	"context"

	"github.com/dlock-go/dlock"
	_ "github.com/dlock-go/dlock/backend/redis" // for Open
)

// NewClient is how the new program connects.
func NewClient(ctx context.Context, addr string) (*dlock.Client, error) {
	return dlock.Open(ctx, "redis://"+addr+"?dlock.ttl=5s", nil)
}

// After does the same with this library.
func After(ctx context.Context, client *dlock.Client, name string, work func(context.Context) error) error {
	return dlock.Do(ctx, client.Mutex(name), func(ctx context.Context, _ *dlock.Lease) error {
		return work(ctx)
	})
}
