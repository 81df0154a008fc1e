package pg

import (
	"context"
	"errors"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// Each attempt that waits in the server's queue needs a session of its own.
// Options.MaxParked bounds how many of them wait at once, Options.MaxConns how many
// there are in all. A slot is the right to wait within both bounds.

// errNoConnection says that a client has as many connections as it may.
var errNoConnection = errors.New("this client has as many connections as it may")

// takeSlot takes a slot for one more request, if there is one. It is called with b.mu
// held.
func (b *Backend) takeSlot() bool {
	conns := b.conns + b.reservedFor(forWaiting)
	if len(b.idle) == 0 {
		conns++
	}
	if b.slotsTaken >= b.opts.MaxParked || conns > b.opts.MaxConns {
		return false
	}
	b.slotsTaken++
	return true
}

// freeSlot gives a slot back.
func (b *Backend) freeSlot() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.slotsTaken--
	b.offerSlots()
}

// offerSlots gives free slots to those who listen, first come first served. It is
// called with b.mu held, whenever there may be some.
func (b *Backend) offerSlots() {
	for len(b.listeners) > 0 && b.takeSlot() {
		a := b.listeners[0]
		b.listeners = b.listeners[1:]
		a.slotOffer <- struct{}{}
	}
}

// afterHeld returns the state that follows when the lock was found held.
func (a *attempt) afterHeld() state {
	b := a.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.listeners) == 0 && b.takeSlot() {
		a.hasSlot = true
		return queued
	}
	return listening
}

// queueAtOnce has a join the queue without a try, if its lock was found held a moment ago
// and there is an idle session to wait on.
func (a *attempt) queueAtOnce(r *backend.Request) bool {
	b := a.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	if !r.Wait || a.shared || !b.isContended(a.lock.key) || len(b.idle) == 0 || !b.takeSlot() {
		return false
	}
	a.hasSlot, a.state = true, queued
	return true
}

// joinQueue sends the statement that waits. If no connection may be made for it, a
// listens.
func (a *attempt) joinQueue() (*query, error) {
	if a.queueSession == nil {
		s, err := a.backend.takeForWait(a.ctx, a.lease)
		if err != nil {
			a.leaveQueue()
			if errors.Is(err, errNoConnection) {
				a.state, err = listening, errAgain
			}
			return nil, err
		}
		a.queueSession = s
	}
	a.claim.due = time.Now().Add(a.claim.pause * 3 / 4)
	q := &query{session: a.queueSession, call: newCall(lockOp(a.shared), a.lock.key)}
	q.session.start(q.call)
	return q, nil
}

// endSlice ends a statement that waited. If the lock is held, the session and the slot
// are kept for the next slice.
func (a *attempt) endSlice(err error) {
	switch {
	case isHeld(err) && a.queueSession.isAlive():
		return
	case err == nil:
		a.queueSession = nil
	default:
		a.state = trying
	}
	a.leaveQueue()
}

// leaveQueue gives back session and slot.
func (a *attempt) leaveQueue() {
	if s := a.queueSession; s != nil {
		a.queueSession = nil
		a.backend.putBack(s)
	}
	if a.hasSlot {
		a.hasSlot = false
		a.backend.freeSlot()
	}
}

// awaitGrant waits for the answer to q, if it may take as long as a slice. A wait in the
// queue is taken back when nobody wants the lock any more. Before its slice is over, a
// claim is made.
func (a *attempt) awaitGrant(closing context.Context, q *query) {
	if !q.call.op.waits() {
		return
	}
	var silent <-chan time.Time
	pause := backend.Backoff{Min: probePause, Max: time.Second}
	if !a.hasAnswer() {
		silent = after(a.firstProbe())
	}
	due := after(a.setDueMarks())
	for {
		select {
		case <-q.call.done:
			q.arrived = true
			return
		case <-due:
			due = after(a.setDueMarks())
		case <-silent:
			silent = nil
			if !a.probeHeld(q) {
				silent = time.After(pause.Next())
			}
		case <-a.ctx.Done():
			q.cancelWait(closing, a.ttl)
			return
		}
	}
}

// probePause is how much longer than an answer usually takes a request waits in the queue
// before another session asks whether the lock is held, and how long it pauses after the
// first such probe. Without an answer the caller knows nothing.
const probePause = 25 * time.Millisecond

// firstProbe is when a, if it has no answer until then, asks whether the lock is held.
func (a *attempt) firstProbe() time.Time {
	return a.started.Add(a.backend.trip.Limit(0, time.Second) + probePause)
}

// probeHeld asks on another session whether the lock that q waits for is held, and
// reports whether that is known. The probe is in nobody's way for longer than its
// statement takes.
func (a *attempt) probeHeld(q *query) bool {
	b := a.backend
	s := b.useSharedNow(sharedKey{a.lease, forHolding})
	if s == nil {
		return false
	}
	defer b.stopUsing(s)
	look := newCall(probe, q.call.arg)
	s.start(look)
	select {
	case <-look.done:
	case <-q.call.done:
		q.call.done <- struct{}{}
		return true
	case <-a.ctx.Done():
		return true
	}
	if look.err != nil || look.value != 0 {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	a.noteHeld()
	return true
}

func (a *attempt) hasAnswer() bool {
	a.backend.mu.Lock()
	defer a.backend.mu.Unlock()
	return a.answered
}

// cancelWait cancels a wait. The server takes no notice while it has not begun with the
// statement, so it is asked again. If it does not confirm within ttl, the session is ended.
func (q *query) cancelWait(closing context.Context, ttl time.Duration) {
	ctx, cancel := backend.Bound(closing, ttl)
	defer cancel()
	var pause backend.Backoff
	for {
		q.session.cancel(ctx)
		select {
		case <-q.call.done:
			q.arrived = true
			return
		case <-time.After(pause.Next()):
		case <-ctx.Done():
			q.session.kill(errSilent)
			return
		}
	}
}
