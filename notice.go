package dlock

import (
	"sync/atomic"

	"github.com/dlock-go/dlock/backend"
)

// A notice tells the hook Waiting, once, that a call has to wait: for a goroutine
// of its own client, or on the server. It is nil if there is no such hook.
type notice struct {
	*hold // what the call may get; nil before it asks the server
	lock  *lock
	mode  backend.Mode
	given atomic.Bool
}

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
	n.hold = h
	return n
}

// Queued implements backend.Observer.
func (n *notice) Queued() {
	if n != nil && n.given.CompareAndSwap(false, true) {
		n.lock.client.opts.Hooks.Waiting(Event{Name: n.lock.name(), Shared: n.mode == backend.Shared})
	}
}
