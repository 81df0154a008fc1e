package conformance

import (
	"context"
	"sync/atomic"

	"github.com/dlock-go/dlock"
)

// hooksPanic has the hook of a call panic: the call panics on, and has neither the lock
// nor a place in the queue.
func hooksPanic(s *scenario) {
	var armed atomic.Bool
	hook := func() {
		if armed.CompareAndSwap(true, false) {
			panic(errTest)
		}
	}
	lock := func(p *Peer) {
		s.Helper()
		defer func() { s.must(recover() == errTest, "the call does not panic on") }()
		armed.Store(true)
		_, _ = p.Mutex(s.name).Lock(s.ctx)
	}
	owner := s.openWith(dlock.Options{Hooks: dlock.Hooks{Acquired: func(context.Context, dlock.AcquiredEvent) { hook() }}})
	waiter := s.openWith(dlock.Options{Hooks: dlock.Hooks{Waiting: func(context.Context, dlock.WaitingEvent) { hook() }}})
	other := s.open()
	lock(owner)
	lease := s.locked(other.Mutex(s.name))
	lock(waiter)
	s.queued(s.name, 0)
	s.unlock(lease)
	s.freed(owner.Mutex(s.name))
}
