package dlock

import (
	"context"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A limited context also ends when nobody has lifted its limit in time, for a server
// that may never answer. It costs nothing until somebody asks for Done: a call that
// is answered at once does without a timer.
type requestContext struct {
	context.Context // that of the caller
	limit           time.Duration

	mu        sync.Mutex
	inner     context.Context // nil: nobody has asked for Done
	cancel    context.CancelCauseFunc
	timer     *time.Timer
	isCleared bool
}

// within bounds ctx by the time that a server has for its first answer, or by ttl if
// that is less.
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

// lift takes the limit away: there was an answer.
func (l *requestContext) clearLimit() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isCleared = true
	if l.timer != nil {
		l.timer.Stop()
	}
}

// fail ends the context for a reason.
func (l *requestContext) fail(cause error) {
	l.Done()
	l.cancel(cause)
}

// end gives up what the context needs.
func (l *requestContext) stop() {
	l.clearLimit()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inner != nil {
		l.cancel(nil)
	}
}
