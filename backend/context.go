package backend

import (
	"context"
	"time"
)

// Bound returns ctx with a deadline d from now, for one exchange with a
// server that may never answer.
func Bound(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d)
}

// Detach returns a context with the values of ctx that outlives it: it ends d
// from now and not before. It is for requests that must be finished although
// the caller has gone.
func Detach(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), d)
}

// Sleep waits for d, or until ctx is done, and reports whether d has passed.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
