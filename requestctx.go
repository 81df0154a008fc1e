package dlock

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A requestContext also ends when the server has not answered within a limit.
type requestContext struct {
	context.Context
	fail  context.CancelCauseFunc // ends the context for a reason
	sent  time.Time
	limit time.Duration
	timer *time.Timer // fires at the limit
	tries bool        // the request does not wait for the lock

	waitsOn bool // the server has answered it, and it waits for more; guarded by the client's mutex
}

// limitFirstAnswer bounds ctx by FirstAnswer, or by ttl if that is less. The caller calls
// stop.
func limitFirstAnswer(ctx context.Context, ttl time.Duration) *requestContext {
	limit := min(ttl, backend.FirstAnswer)
	return limitAnswer(ctx, limit, limit)
}

// limitAnswer bounds ctx by limit, with which a silence of that length ends: the caller may have waited behind others
// that had no answer. The caller calls stop.
func limitAnswer(ctx context.Context, limit, silence time.Duration) *requestContext {
	l := &requestContext{sent: time.Now(), limit: limit}
	l.Context, l.fail = context.WithCancelCause(ctx)
	l.timer = time.AfterFunc(l.limit, func() { l.fail(backend.NoAnswer(silence)) })
	return l
}

// clearLimit removes the limit: the server has answered.
func (l *requestContext) clearLimit() { l.timer.Stop() }

// restart begins the limit anew, unless it is over: the server has answered in part.
func (l *requestContext) restart() {
	if l.timer.Stop() {
		l.renewLimit()
	}
}

// renewLimit begins the limit anew after clearLimit.
func (l *requestContext) renewLimit() { l.timer.Reset(l.limit) }

// stop frees the timer and ends the context.
func (l *requestContext) stop() {
	l.clearLimit()
	l.fail(nil)
}
