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
	if b.slotsTaken >= b.opts.MaxParked || b.roomToWait()+min(len(b.idle), 1) < 1 {
		return false
	}
	b.slotsTaken++
	return true
}

// offerSlots gives free slots to those who listen, first come first served. It is
// called with b.mu held, whenever there may be some.
func (b *Backend) offerSlots() {
	for len(b.listeners) > 0 && b.takeSlot() {
		a := b.listeners[0]
		b.listeners = b.listeners[1:]
		a.hasSlot = true
		a.signal()
	}
}

// afterHeld returns the state that follows when the lock was found held: trying, where no
// connection could be had a moment ago.
func (a *attempt) afterHeld() state {
	b := a.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.idle) == 0 && time.Now().Before(a.connectAfter) {
		return trying
	}
	if len(b.listeners) == 0 && b.takeSlot() {
		a.hasSlot = true
		return queued
	}
	return listening
}

// queueAtOnce has a join the queue without a try, if its lock was found held a moment ago
// and there is an idle session to wait on.
func (a *attempt) queueAtOnce(r *backend.Request) {
	b := a.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.Wait && !a.shared && b.isContended(a.lock.key) && len(b.idle) > 0 && b.takeSlot() {
		a.hasSlot, a.state = true, queued
	}
}

// joinQueue sends the statement that waits. If no connection may be made for it, a
// listens.
func (a *attempt) joinQueue() (*query, error) {
	a.stopListening()
	if a.queueSession == nil {
		ctx, cancel := backend.Bound(a.ctx, backend.FirstAnswer) // nobody tries meanwhile
		s, err := a.backend.takeForWait(ctx, a.lease)
		cancel()
		if err != nil {
			a.leaveQueue()
			if errors.Is(err, errNoConnection) {
				a.state, err = listening, errAgain
			}
			return nil, err
		}
		a.queueSession = s
		a.connectDelay.Reset()
	}
	a.claim.due = time.Now().Add(a.claim.pause * 3 / 4)
	q := &query{session: a.queueSession, call: newCall(lockExclusive.of(a.shared), a.lock.key)}
	q.session.start(q.call)
	return q, nil
}

// endSlice ends a statement that waited. If the lock is held, the session and the slot
// are kept for the next slice.
func (a *attempt) endSlice(err error) {
	if err != nil && !(isHeld(err) && a.queueSession.isAlive()) {
		a.state = trying
		a.leaveQueue()
	}
}

// leaveQueue gives back session and slot.
func (a *attempt) leaveQueue() {
	b := a.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := a.queueSession; s != nil {
		a.queueSession = nil
		b.endUse(s)
	}
	if a.hasSlot {
		a.hasSlot = false
		b.slotsTaken--
		b.offerSlots()
	}
}

// awaitGrant waits for the answer to q, if it may take as long as a slice. A wait in the
// queue is taken back when nobody wants the lock any more. Before its slice is over, a
// claim is made.
func (a *attempt) awaitGrant(closing context.Context, q *query) {
	if !q.call.op.waits() {
		return
	}
	probe := a.started.Add(a.backend.trip.Limit(0, time.Second) + probePause)
	pause := backend.Backoff{Min: probePause, Max: time.Second}
	for {
		due := a.setDueMarks()
		if !a.hasAnswer() {
			if !time.Now().Before(probe) {
				a.probeHeld(q)
				probe = time.Now().Add(pause.Next())
			}
			due = earlier(due, probe)
		}
		select {
		case <-q.call.done:
			return
		case <-after(due):
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

// probeHeld asks on another session whether the lock that q waits for is held. It is not
// held by q itself, which may have the lock and wait for its token. The probe is in nobody's
// way for longer than its statement takes.
func (a *attempt) probeHeld(q *query) {
	b := a.backend
	now, cancel := backend.Bound(a.ctx, 0)
	defer cancel()
	s, err := b.useShared(now, a.lease)
	if err != nil {
		return
	}
	defer b.stopUsing(s)
	look := newCall(probeHeld, q.call.arg)
	s.start(look)
	select {
	case <-look.done:
	case <-q.call.done:
		return
	case <-a.ctx.Done():
		return
	}
	if look.err != nil || look.value == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	a.noteHeld()
}

func (a *attempt) hasAnswer() bool {
	a.backend.mu.Lock()
	defer a.backend.mu.Unlock()
	return a.foundHeld
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
			return
		case <-time.After(pause.Next()):
		case <-ctx.Done():
			q.session.kill(errSilent)
			return
		}
	}
}
