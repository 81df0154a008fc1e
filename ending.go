package dlock

import (
	"context"
	"sync"
)

// An ending is how a lease ends: once, for a reason, with everybody told who
// asked to be.
type ending struct {
	mu   sync.Mutex
	why  *Error        // why it has ended; nil: it has not
	done chan struct{} // closed at the end; nil: nobody asked yet
	told []func(error) // called at the end
}

var closedChan = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// end ends the lease on name, and reports false if it had ended before.
func (n *ending) end(name string, kind, cause error) bool {
	n.mu.Lock()
	if n.why != nil {
		n.mu.Unlock()
		return false
	}
	n.why = &Error{Op: "hold", Name: name, Kind: kind, Err: cause}
	told := n.told
	n.told = nil
	if n.done != nil {
		close(n.done)
	}
	n.mu.Unlock()
	for _, f := range told {
		f(n.why)
	}
	return true
}

// cause is why the lease has ended, nil if it has not.
func (n *ending) cause() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.why == nil {
		return nil
	}
	return n.why
}

// whenDone returns the channel that end closes.
func (n *ending) whenDone() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.done != nil:
	case n.why != nil:
		return closedChan
	default:
		n.done = make(chan struct{})
	}
	return n.done
}

// tell has f called at the end, at once if that has been.
func (n *ending) tell(f func(error)) {
	n.mu.Lock()
	if n.why == nil {
		n.told = append(n.told, f)
		n.mu.Unlock()
		return
	}
	n.mu.Unlock()
	f(n.why)
}

// context returns a child of parent that ends with the lease.
func (n *ending) context(parent context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(parent)
	n.tell(cancel)
	return ctx
}
