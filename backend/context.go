package backend

import (
	"context"
	"time"
)

// Bound returns ctx with a deadline d from now, for one exchange with a
// server that may never answer.
func Bound(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return BoundCause(ctx, d, nil)
}

// BoundCause is Bound, with the cause of the end after d.
func BoundCause(ctx context.Context, d time.Duration, cause error) (context.Context, context.CancelFunc) {
	at, ok := ctx.Deadline()
	if !ok || time.Until(at) >= d {
		return context.WithTimeoutCause(ctx, d, cause)
	}
	// It may not end by then, see EndsByDeadline, and package context would go by that.
	out, cancel := context.WithTimeoutCause(undated{ctx}, d, cause)
	if EndsByDeadline(ctx) {
		out = dated{out, at}
	}
	return out, cancel
}

// EndsByDeadline reports whether ctx has a deadline, and ends, as far as can be seen. A program may have made
// one that never ends from another whose deadline it still has, and others from that.
func EndsByDeadline(ctx context.Context) bool {
	at, ok := ctx.Deadline()
	return ok && ctx.Done() != nil && (time.Now().Before(at) || ctx.Err() != nil)
}

// BoundPast returns ctx with an end d after its deadline, for one that says a deadline and does not end by it. Where
// ctx does, its own end comes first, with its cause.
func BoundPast(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	at, _ := ctx.Deadline()
	out, cancel := context.WithTimeout(undated{ctx}, time.Until(at)+d)
	return dated{out, at}, cancel
}

// An undated context says no deadline.
type undated struct{ context.Context }

// Deadline implements context.Context.
func (undated) Deadline() (time.Time, bool) { return time.Time{}, false }

// A dated context says a deadline that is not its own.
type dated struct {
	context.Context
	at time.Time
}

// Deadline implements context.Context.
func (c dated) Deadline() (time.Time, bool) { return c.at, true }

// Detach returns a context with the values of ctx that outlives it: it ends d
// from now and not before. It is for requests that must be finished although
// the caller has gone.
func Detach(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), d)
}

// WithValues returns lifetime with the values of ctx too, which come first. It is for
// requests that are not the caller's alone but begin for it: what traces them finds the
// caller's span.
func WithValues(lifetime, ctx context.Context) context.Context {
	return valuesContext{lifetime, context.WithoutCancel(ctx)}
}

type valuesContext struct {
	context.Context
	values context.Context
}

// Value implements context.Context.
func (c valuesContext) Value(key any) any {
	if v := c.values.Value(key); v != nil {
		return v
	}
	return c.Context.Value(key)
}

// Since returns the time since t by the clock that has moved on further: the monotonic one
// stands still while the machine sleeps.
func Since(t time.Time) time.Duration {
	now := time.Now()
	return max(now.Sub(t), now.Round(0).Sub(t.Round(0)))
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
