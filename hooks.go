package dlock

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// Hooks are functions that a client calls when something happens to one of its
// locks, for metrics and traces. Each may be nil. They are called without any
// lock of the client held, from the goroutine that the event happened in, and Lost
// from one for all that are lost together. They must be safe for concurrent use and
// should return quickly: Renewed holds up the renewal of other locks, and Lost the
// report of others. A hook that calls Client.Close, or Unlock from Renewed, does so in
// another goroutine: they wait for what has called the hook. A hook that panics leaves
// the lock as if it had not been called, and panics on: in the call for which it was
// called, or, as Lost and Renewed are called for none, in a goroutine that ends the
// program.
type Hooks struct {
	// Waiting: a call did not get the lock at once and waits for it.
	Waiting func(Event)

	// Acquired: a call has entered the lock. Waited says how long it took.
	Acquired func(Event)

	// Renewed: a hold was renewed. Left says how much of the lease was left,
	// which is the measure to watch: it falls before locks are lost.
	Renewed func(Event)

	// Lost: a hold is over that nobody unlocked. Err says why.
	Lost func(Event)

	// Released: a hold was given back. Held says how long it lasted; Err is
	// not nil if the server could not be told yet.
	Released func(Event)
}

// An Event is what a hook is told. Fields that do not fit the event are zero.
type Event struct {
	Name   string
	Shared bool
	Token  uint64
	Nested bool          // a re-entry
	Waited time.Duration // from the call to the lease
	Held   time.Duration // from the lease to its release or loss
	Left   time.Duration // what was left of the lease when it was renewed
	Err    error
}

// complain logs what no caller is told.
func (c *Client) complain(msg, name string, cause error) {
	c.log.Warn("dlock: "+msg, slog.String("lock", name), slog.Any("cause", cause))
}

// practicalTTL is the least TTL that a busy machine can keep.
const practicalTTL = 100 * time.Millisecond

func (c *Client) warnOfShortTTL() {
	c.log.Warn("dlock: a TTL below 100ms is lost on a busy machine", slog.Duration("least", practicalTTL))
}

// callAcquired calls the hook Acquired. If the hook panics, the lease is unlocked: no
// caller has it.
func (l *Lease) callAcquired(ctx context.Context, f func(Event), e Event) {
	called := false
	defer func() {
		if !called {
			_ = l.Unlock(ctx)
		}
	}()
	f(e)
	called = true
}

// A waitingHook calls the hook Waiting once for a call that has to wait, be it for a
// goroutine of its own client or on the server. It is nil if there is no such hook.
type waitingHook struct {
	*hold      // that is asked for; nil before the server is asked
	requestCtx *requestContext
	lock       *lock
	mode       backend.Mode
	isCalled   atomic.Bool
	panic      atomic.Pointer[hookPanic]
}

// A hookPanic is what the hook has panicked with in a goroutine of the backend's.
type hookPanic struct{ value any }

func (l *lock) waitingHook(r request) *waitingHook {
	if l.client.opts.Hooks.Waiting == nil {
		return nil
	}
	return &waitingHook{lock: l, mode: r.mode}
}

// observer returns the Observer of the request for h: w if there is a hook, otherwise
// h.
func (n *waitingHook) observer(h *hold) backend.Observer {
	if n == nil {
		return h
	}
	n.hold, n.requestCtx = h, h.requestCtx
	return n
}

// call calls the hook, the first time.
func (n *waitingHook) call() {
	if n.isCalled.CompareAndSwap(false, true) {
		n.lock.client.opts.Hooks.Waiting(Event{Name: n.lock.name(), Shared: n.mode == backend.Shared})
	}
}

// Queued implements backend.Observer. A panic of the hook is not the backend's: it
// ends the call, which panics on.
func (n *waitingHook) Queued() {
	n.hold.Queued()
	defer func() {
		if v := recover(); v != nil {
			n.panic.Store(&hookPanic{v})
			n.requestCtx.fail(errHookPanicked)
		}
	}()
	n.call()
}

// panicked returns what the hook has panicked with, or nil.
func (n *waitingHook) panicked() *hookPanic {
	if n == nil {
		return nil
	}
	return n.panic.Load()
}

// callWaiting calls the hook Waiting for w. If the hook panics, w leaves the queue and
// gives back a lease that it has got meanwhile.
func (c *Client) callWaiting(ctx context.Context, hook *waitingHook, q *queue, w *waiter) {
	called := false
	defer func() {
		if called {
			return
		}
		if lease, _, _ := c.withdraw(ctx, q, w, errHookPanicked); lease != nil {
			_ = lease.Unlock(ctx)
		}
	}()
	hook.call()
	called = true
}

// callHook calls f, if it is not nil, with an event about h.
func (h *hold) callHook(f func(Event), err error) {
	if f != nil {
		f(h.event(err))
	}
}

func (h *hold) event(err error) Event {
	held := h.age()
	h.mu.Lock()
	defer h.mu.Unlock()
	return Event{
		Name:   h.lock.name(),
		Shared: h.item.Hold.Mode == backend.Shared,
		Token:  h.item.Hold.Token,
		Held:   held,
		Err:    err,
	}
}
