package dlock

import (
	"context"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A requestContext also ends when the server has not answered within a limit. It
// starts a timer only when somebody calls Done: a request that is answered at once
// needs none.
type requestContext struct {
	context.Context // the caller's
	limit           time.Duration

	mu        sync.Mutex
	inner     context.Context // nil: nobody has asked for Done
	cancel    context.CancelCauseFunc
	timer     *time.Timer
	isCleared bool
}

// limitFirstAnswer bounds ctx by FirstAnswer, or by ttl if that is less.
func limitFirstAnswer(ctx context.Context, ttl time.Duration) *requestContext {
	return &requestContext{Context: ctx, limit: min(ttl, backend.FirstAnswer)}
}

func (l *requestContext) Done() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inner == nil {
		l.inner, l.cancel = context.WithCancelCause(l.Context)
		if !l.isCleared {
			l.timer = time.AfterFunc(l.limit, func() { l.fail(backend.NoAnswer(l.limit)) })
		}
	}
	return l.inner.Done()
}

func (l *requestContext) Err() error { return l.current().Err() }

// Value also lets package context find what it knows to be a context that ends, so
// that those made from l cost what they cost otherwise.
func (l *requestContext) Value(key any) any { return l.current().Value(key) }

func (l *requestContext) current() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inner == nil {
		return l.Context
	}
	return l.inner
}

// clearLimit removes the limit: the server has answered.
func (l *requestContext) clearLimit() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isCleared = true
	if l.timer != nil {
		l.timer.Stop()
	}
}

// restart begins the limit anew, unless it is over: the server has answered in part.
func (l *requestContext) restart() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil && !l.isCleared {
		l.timer.Reset(l.limit)
	}
}

// fail ends the context for a reason.
func (l *requestContext) fail(cause error) {
	l.Done()
	l.cancel(cause)
}

// stop frees the timer and ends the context.
func (l *requestContext) stop() {
	l.clearLimit()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inner != nil {
		l.cancel(nil)
	}
}
