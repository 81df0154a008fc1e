package dlock

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/renewal"
)

// A call is what the hooks are told of one call that asks for a lock.
type call struct {
	lock     *lock
	hooks    *Hooks
	ctx      context.Context // that of the caller, or what Acquiring has returned
	op       string
	shared   bool
	nested   bool
	handOver HandOver
	start    time.Time
	progress atomic.Int32              // callBegan, callQueued or callEnded
	panic    atomic.Pointer[hookPanic] // of a hook that was called on another goroutine
}

const (
	callBegan = iota
	callQueued
	callEnded
)

// tellCall enters l for r, with the context that the hook Acquiring returns, and tells the
// hooks of it. If one of them panics meanwhile, the call ends with NotAcquired.
func (l *lock) tellCall(ctx context.Context, r request) (*Lease, error) {
	t := &call{
		lock:   l,
		hooks:  &l.client.opts.Hooks,
		ctx:    ctx,
		op:     r.op,
		shared: r.mode == backend.Shared,
		nested: true, // until a lock is no re-entry
		start:  time.Now(),
	}
	if ctx == nil {
		t.ctx = context.Background()
	}
	if f := t.hooks.Acquiring; f != nil {
		with := f(t.ctx, AcquiringEvent{Op: t.op, Name: l.name, Shared: t.shared})
		if with != nil {
			t.ctx = with // of a call with a nil context, too: NotAcquired ends what Acquiring began
			if ctx != nil {
				ctx = with
			}
		}
	}
	r.call = t
	entered := false
	defer func() {
		if !entered {
			t.tellNotAcquired(OutcomeFailed, &Error{Op: t.op, Name: l.name, Err: errHookPanicked})
		}
	}()
	lease, err := l.enter(ctx, r)
	entered = true
	if err != nil {
		t.tellNotAcquired(outcomeOf(t.ctx, err), err)
		return nil, err
	}
	t.tellAcquired(lease)
	return lease, nil
}

// outcomeOf returns the outcome of a call with ctx that has returned err.
func outcomeOf(ctx context.Context, err error) Outcome {
	e, ok := err.(*Error)
	switch {
	case ok && e.Kind == nil, ctx.Err() == context.Canceled && errors.Is(err, context.Canceled):
		return OutcomeCanceled
	case kindOf(err, nil) == ErrHeld:
		return OutcomeHeld
	}
	return OutcomeFailed
}

// noteHandOver notes from whom a lock came. Of the locks of a multi-lock, the server's word
// counts before that of this client.
func (t *call) noteHandOver(from HandOver) {
	if t.handOver != RemoteHandOver {
		t.handOver = from
	}
}

// noteQueued calls Waiting, the first time and if the call has not ended.
func (t *call) noteQueued(lock string) {
	if t.progress.CompareAndSwap(callBegan, callQueued) && t.hooks.Waiting != nil {
		t.hooks.Waiting(t.ctx, WaitingEvent{Op: t.op, Name: t.lock.name, Lock: lock, Shared: t.shared})
	}
}

func (t *call) tellNotAcquired(o Outcome, err error) {
	queued := t.progress.Swap(callEnded) == callQueued
	if f := t.hooks.NotAcquired; f != nil {
		f(t.ctx, NotAcquiredEvent{
			Op:      t.op,
			Name:    t.lock.name,
			Shared:  t.shared,
			Queued:  queued,
			Waited:  time.Since(t.start),
			Outcome: o,
			Err:     err,
		})
	}
}

// lastLease is the number of the last lease of this process that hooks were told of.
var lastLease atomic.Uint64

// tellAcquired calls Acquired. If that panics, the lease is unlocked: no caller has it.
func (t *call) tellAcquired(l *Lease) {
	now := time.Now()
	e := AcquiredEvent{
		Op:       t.op,
		Name:     t.lock.name,
		Shared:   t.shared,
		Lease:    lastLease.Add(1),
		Token:    l.of.token(),
		Nested:   t.nested,
		Queued:   t.progress.Swap(callEnded) == callQueued,
		HandOver: t.handOver,
		Waited:   now.Sub(t.start),
		Place:    t.lock.client.place,
		FullName: t.lock.fullName,
	}
	called := false
	defer func() {
		t.openRecord(l, e, now)
		if !called {
			l.discard(t.ctx)
		}
	}()
	if f := t.hooks.Acquired; f != nil {
		f(t.ctx, e)
	}
	called = true
}

// A leaseRecord is what the hooks are to be told when a lease ends.
type leaseRecord struct {
	since time.Time
	event ReleasedEvent // but for Age and Err
}

// openRecord notes what the hooks are to be told when l ends. If l has ended already, it
// tells them: whoever ended l found no record.
func (t *call) openRecord(l *Lease, e AcquiredEvent, now time.Time) {
	n := l.of.life()
	n.record.Store(&leaseRecord{now, ReleasedEvent{
		Name:   e.Name,
		Shared: e.Shared,
		Lease:  e.Lease,
		Token:  e.Token,
		Nested: e.Nested,
	}})
	if r := l.of.reason(); r != nil {
		n.tellEnd(t.ctx, r.on(t.lock.name))
	}
}

// tellEnd calls the hook for the end of the lease, once. Err says which: an ErrLost is
// told to Lost, an ErrClosed to Closed, and anything else to Released.
func (l *lifecycle) tellEnd(ctx context.Context, err error) {
	record := l.record.Swap(nil)
	if record == nil {
		return
	}
	h, e := &l.lock.client.opts.Hooks, record.event
	e.Age, e.Err = time.Since(record.since), err
	switch {
	case kindOf(err, nil) == ErrLost:
		if h.Lost != nil {
			h.Lost(LostEvent{
				Name:   e.Name,
				Shared: e.Shared,
				Lease:  e.Lease,
				Token:  e.Token,
				Nested: e.Nested,
				Age:    e.Age,
				Cause:  lossCause(err),
				Err:    err,
			})
		}
	case kindOf(err, nil) == ErrClosed:
		if h.Closed != nil {
			e.Err = beyondClosed(err)
			h.Closed(ctx, ClosedEvent(e))
		}
	default:
		if h.Released != nil {
			h.Released(ctx, e)
		}
	}
}

// leasesToTell returns the open leases on h that the hooks are to be told the end of, and
// the multi-locks that others are part of: several if a multi-lock was entered again.
func (h *hold) leasesToTell() (single []*entry, multi []*multiLease) {
	if !h.lock.client.tellsOfCalls {
		return nil, nil
	}
	for _, e := range h.openLeases() {
		if g := e.group.Load(); g != nil {
			multi = append(multi, g)
		} else {
			single = append(single, e)
		}
	}
	return single, multi
}

// beyondClosed returns the cause of err, an ErrClosed, but nil if that says only that Close
// has ended the locks of a multi-lock.
func beyondClosed(err error) error {
	e, ok := err.(*Error)
	if !ok || errors.Is(e.Err, ErrClosed) && !errors.Is(e.Err, ErrUnavailable) {
		return nil
	}
	if backend.OwnersCause(e.Err) == nil {
		return e.Err
	}
	return newError("unlock", e.Name, e.Err) // which tells it
}

// A hookPanic is what a hook has panicked with in another goroutine than the caller's. Its
// value is nil if the hook has ended that goroutine.
type hookPanic struct{ value any }

// goOn ends the caller as the hook would have.
func (p *hookPanic) goOn() {
	if p.value == nil {
		runtime.Goexit()
	}
	panic(p.value)
}

// apart calls f, which calls a hook, in a goroutine of its own, and waits for it: a hook that
// ends its goroutine ends no other.
func apart(f func()) {
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	<-done
}

// queuedOnServer tells the hooks that a request waits for lock on the server. A hook that
// panics must not end the backend's goroutine: the request fails, and its caller panics.
func (t *call) queuedOnServer(lock string, request *requestContext) {
	apart(func() {
		returned := false
		defer func() {
			if v := recover(); !returned {
				t.panic.Store(&hookPanic{v})
				request.fail(errHookPanicked)
			}
		}()
		t.noteQueued(lock)
		returned = true
	})
}

// callWaiting calls the hook Waiting for w, which waits for l. If the hook panics, w leaves
// the queue and gives back a lease that it has got meanwhile.
func (l *lock) callWaiting(ctx context.Context, t *call, q *turnQueue, w *waiter) {
	c, called := l.client, false
	defer func() {
		if called {
			return
		}
		c.mu.Lock()
		q.Withdraw(w)
		c.mu.Unlock()
		if w.Value.lease != nil {
			w.Value.lease.discard(ctx)
		}
	}()
	t.noteQueued(l.name)
	called = true
}

func lossCause(err error) LossCause {
	switch {
	case says(err, ErrBroken):
		return LossBroken
	case says(err, renewal.ErrMaxHold):
		return LossMaxHold
	case says(err, renewal.ErrNoAnswer):
		return LossExpired
	}
	return LossTaken
}
