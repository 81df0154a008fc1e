package queue

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// ErrAborted is why a wait ends whose abort channel was closed.
var ErrAborted = errors.New("the wait was aborted")

// A Waiter is one place in a Queue.
type Waiter[T any] struct {
	// Value is the caller's: what the waiter wants, and what HandOver gives to it.
	Value T

	mode     backend.Mode
	tryOnly  bool
	answered atomic.Bool // the lock was held at some time since the wait began
	joined   time.Time
	state    state
	err      error         // why the wait has failed, or nil
	ready    chan struct{} // closed when the wait is over

	before, next *Waiter[T] // in the queue while it waits
}

// A state says what has become of a waiter.
type state uint8

const (
	waiting state = iota
	admitted
	handedOver
	failed
)

// NewWaiter returns a waiter for an entry in that mode. Held says that the lock is known to
// be held. A waiter with tryOnly wants an entry only if it turns out that the lock is not
// held.
func NewWaiter[T any](v T, mode backend.Mode, tryOnly, held bool) *Waiter[T] {
	w := &Waiter[T]{Value: v, mode: mode, tryOnly: tryOnly, ready: make(chan struct{})}
	w.answered.Store(held)
	return w
}

// Mode returns the mode in which w wants to enter.
func (w *Waiter[T]) Mode() backend.Mode { return w.mode }

// Answered reports whether the lock was known to be held at some time while w waited.
func (w *Waiter[T]) Answered() bool { return w.answered.Load() }

// Wait waits until w, which is in q, is admitted or has the place handed over to it. It
// takes mu, which guards q. It fails when ctx ends or abort, which may be nil, is closed;
// when w is turned away; and if for backend.FirstAnswer there is no answer, and it is not known
// whether the lock is held. When Wait has failed, w has no place.
func (w *Waiter[T]) Wait(ctx context.Context, q *Queue[T], mu sync.Locker, abort <-chan struct{}) error {
	var silence *time.Timer
	var silent <-chan time.Time
	if !w.Answered() {
		silence = time.NewTimer(backend.FirstAnswer)
		defer silence.Stop()
		silent = silence.C
	}
	for {
		select {
		case <-w.ready:
			return w.err
		case <-ctx.Done():
			return w.withdraw(q, mu, backend.WaitEnded(ctx, w.Answered()))
		case <-abort:
			return w.withdraw(q, mu, ErrAborted)
		case <-silent:
			settled, left := w.patience(q, mu)
			switch {
			case settled:
				silent = nil
			case left <= 0:
				return w.withdraw(q, mu, backend.Fail(backend.ErrUnavailable, backend.NoAnswer(backend.FirstAnswer)))
			default:
				silence.Reset(left)
			}
		}
	}
}

// withdraw takes w out of q and returns why. If the place was handed over to w
// meanwhile, or the wait has failed, it returns what that has come to.
func (w *Waiter[T]) withdraw(q *Queue[T], mu sync.Locker, why error) error {
	mu.Lock()
	defer mu.Unlock()
	if !q.Withdraw(w) {
		return w.err
	}
	return why
}

// patience reports whether the lock is known to be held, or the wait is over, and how much longer w waits for
// an answer if not.
func (w *Waiter[T]) patience(q *Queue[T], mu sync.Locker) (settled bool, left time.Duration) {
	mu.Lock()
	defer mu.Unlock()
	return w.Answered() || w.state != waiting, backend.FirstAnswer - q.Silence(w)
}
