package redislock

import (
	"context"
	"time"

	"github.com/dlock-go/dlock"
)

// After does the same with this library.
func After(ctx context.Context, client *dlock.Client, name string, work func(context.Context) error) error {
	mutex := client.Mutex(name, dlock.WithTTL(6*time.Second), dlock.WithMaxWait(time.Minute))
	return dlock.Do(ctx, mutex, func(ctx context.Context, _ *dlock.Lease) error {
		return work(ctx)
	})
}
