package dlock

import (
	"sync/atomic"

	"github.com/dlock-go/dlock/backend"
)

// A notice tells the hook Waiting, once, that a call has to wait: for a goroutine
// of its own client, or on the server. It is nil if there is no such hook.
type notice struct {
	*hold // what the call may get; nil before it asks the server
	asked *limited
	lock  *lock
	mode  backend.Mode
	given atomic.Bool
	panic atomic.Pointer[hookPanic]
}

// A hookPanic is what the hook has panicked with in a goroutine of the backend's.
type hookPanic struct{ value any }

func (l *lock) notice(r request) *notice {
	if l.client.opts.Hooks.Waiting == nil {
		return nil
	}
	return &notice{lock: l, mode: r.mode}
}

// observer is h, or n in its stead.
func (n *notice) observer(h *hold) backend.Observer {
	if n == nil {
		return h
	}
	n.hold, n.asked = h, h.question
	return n
}

// give calls the hook.
func (n *notice) give() {
	if n.given.CompareAndSwap(false, true) {
		n.lock.client.opts.Hooks.Waiting(Event{Name: n.lock.name(), Shared: n.mode == backend.Shared})
	}
}

// Queued implements backend.Observer. A panic of the hook is not the backend's: it
// ends the call, which panics on.
func (n *notice) Queued() {
	n.hold.Queued()
	defer func() {
		if v := recover(); v != nil {
			n.panic.Store(&hookPanic{v})
			n.asked.fail(errHookPanicked)
		}
	}()
	n.give()
}

// panicked returns what the hook has panicked with, or nil.
func (n *notice) panicked() *hookPanic {
	if n == nil {
		return nil
	}
	return n.panic.Load()
}
