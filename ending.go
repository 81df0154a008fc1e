package dlock

import "sync"

// An ending is how the lease on a lock ends: once, for a reason, with
// everybody told who asked to be.
type ending struct {
	mu   sync.Mutex
	kind error         // nil: it has not ended
	by   error         // the cause, or nil
	done chan struct{} // closed at the end; nil: nobody asked yet
	told func(error)   // called at the end, or nil
}

var closedChan = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// end ends the lease on name, and reports false if it had ended before.
func (n *ending) end(name string, kind, cause error) bool {
	told, first := n.mark(kind, cause)
	if told != nil {
		told(n.why(name))
	}
	return first
}

// mark is the part of end that may be done with locks held. It returns who is
// to be told then.
func (n *ending) mark(kind, cause error) (told func(error), first bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.kind != nil {
		return nil, false
	}
	n.kind, n.by = kind, cause
	told, n.told = n.told, nil
	if n.done != nil {
		close(n.done)
	}
	return told, true
}

// why is an *Error on name that says why the lease has ended, nil if it has
// not.
func (n *ending) why(name string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.kind == nil {
		return nil
	}
	return &Error{Op: "hold", Name: name, Kind: n.kind, Err: n.by}
}

func (n *ending) ended() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.kind != nil
}

// whenDone returns the channel that end closes.
func (n *ending) whenDone() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.done != nil:
	case n.kind != nil:
		return closedChan
	default:
		n.done = make(chan struct{})
	}
	return n.done
}

// tell has f called at the end of the lease on name, at once if that has been.
func (n *ending) tell(name string, f func(error)) {
	n.mu.Lock()
	if n.kind == nil {
		if before := n.told; before != nil {
			n.told = func(why error) { before(why); f(why) }
		} else {
			n.told = f
		}
		n.mu.Unlock()
		return
	}
	n.mu.Unlock()
	f(n.why(name))
}
