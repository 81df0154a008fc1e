package curator

import (
	"context"

	"github.com/dlock-go/dlock"
)

// Both does the work beside Java programs that hold the InterProcessMutex of /locks/name.
func Both(ctx context.Context, client *dlock.Client, servers []string, name string, work func(context.Context) error) error {
	return dlock.Do(ctx, client.Mutex(name), func(ctx context.Context, _ *dlock.Lease) error {
		return UnderMutex(ctx, servers, "/locks/"+name, work)
	})
}
