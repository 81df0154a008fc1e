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
type limited struct {
	context.Context // that of the caller
	limit           time.Duration

	mu     sync.Mutex
	inner  context.Context // nil: nobody has asked for Done
	cancel context.CancelCauseFunc
	timer  *time.Timer
	lifted bool
}

// within bounds ctx by the time that a server has for its first answer, or by ttl if
// that is less.
func within(ctx context.Context, ttl time.Duration) *limited {
	return &limited{Context: ctx, limit: min(ttl, backend.FirstAnswer)}
}

func (l *limited) Done() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inner == nil {
		l.inner, l.cancel = context.WithCancelCause(l.Context)
		if !l.lifted {
			l.timer = time.AfterFunc(l.limit, func() { l.fail(backend.NoAnswer(l.limit)) })
		}
	}
	return l.inner.Done()
}

func (l *limited) Err() error { return l.current().Err() }

// Value also lets package context find what it knows to be a context that ends, so
// that those made from l cost what they cost otherwise.
func (l *limited) Value(key any) any { return l.current().Value(key) }

func (l *limited) current() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inner == nil {
		return l.Context
	}
	return l.inner
}

// lift takes the limit away: there was an answer.
func (l *limited) lift() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lifted = true
	if l.timer != nil {
		l.timer.Stop()
	}
}

// fail ends the context for a reason.
func (l *limited) fail(cause error) {
	l.Done()
	l.cancel(cause)
}

// end gives up what the context needs.
func (l *limited) end() {
	l.lift()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inner != nil {
		l.cancel(nil)
	}
}
