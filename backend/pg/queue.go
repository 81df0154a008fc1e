package pg

import (
	"errors"
	"time"
)

// Those who wait on the server's queue have a session each, of which a client has
// only so many: Options.MaxParked bounds how many wait at once, Options.MaxConns
// how many there are. A request has room if neither is exceeded.

// errNoRoom says that a client has as many connections as it may.
var errNoRoom = errors.New("this client has as many connections as it may")

// takeRoom gives room to one more request. It is called with b.mu held.
func (b *Backend) takeRoom() bool {
	conns := b.conns + b.spare(queueing)
	if len(b.idle) == 0 {
		conns++
	}
	if b.waiting >= b.opts.MaxParked || conns > b.opts.MaxConns {
		return false
	}
	b.waiting++
	return true
}

// freeRoom takes it back.
func (b *Backend) freeRoom() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting--
	b.offerRoom()
}

// offerRoom gives room to those who listen, in the order in which they came. It is
// called with b.mu held, whenever there may be some.
func (b *Backend) offerRoom() {
	for len(b.listeners) > 0 && b.takeRoom() {
		a := b.listeners[0]
		b.listeners = b.listeners[1:]
		a.room <- struct{}{}
	}
}

// afterHeld returns the state that follows when the lock was found held.
func (a *ask) afterHeld() state {
	b := a.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.listeners) == 0 && b.takeRoom() {
		a.hasRoom = true
		return queued
	}
	return listening
}

// queueAtOnce has an idle session wait, once the call is sent. It returns nil if
// there is none.
func (a *ask) queueAtOnce() *question {
	b := a.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	if a.waiter == nil {
		if len(b.idle) == 0 || !a.hasRoom && !b.takeRoom() {
			return nil
		}
		a.hasRoom = true
		a.waiter = b.takeIdle(a.lease)
	}
	a.state = queued
	return a.queueOn(a.waiter)
}

// queue sends the statement that waits. If there are no connections left, a listens.
func (a *ask) queue() (*question, error) {
	if a.waiter == nil {
		s, err := a.backend.take(a.ctx, a.lease)
		if err != nil {
			a.leaveQueue()
			if errors.Is(err, errNoRoom) {
				a.state, err = listening, errAgain
			}
			return nil, err
		}
		a.waiter = s
	}
	q := a.queueOn(a.waiter)
	a.waiter.start(q.call)
	return q, nil
}

func (a *ask) queueOn(s *session) *question {
	return &question{session: s, call: newCall(lockOp(a.shared), a.place.key), asked: time.Now()}
}

// endSlice keeps the session for the next slice if the lock is held. If it was
// granted, the session has it; otherwise a begins anew.
func (a *ask) endSlice(err error) {
	switch {
	case isHeld(err) && a.waiter.lives():
		return
	case err == nil:
		a.waiter = nil
	default:
		a.state = trying
	}
	a.leaveQueue()
}

// leaveQueue gives back what is needed to wait.
func (a *ask) leaveQueue() {
	if s := a.waiter; s != nil {
		a.waiter = nil
		a.backend.putBack(s)
	}
	if a.hasRoom {
		a.hasRoom = false
		a.backend.freeRoom()
	}
}
