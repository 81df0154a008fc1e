package dlock

import (
	"sync"

	"github.com/dlock-go/dlock/backend"
)

// An ending is how the lease on a lock ends: once, for a reason, with
// everybody told who asked to be.
type ending struct {
	mu   sync.Mutex
	over *reason       // nil: it has not ended
	done chan struct{} // closed at the end; nil: nobody asked yet
	told func(error)   // called at the end, or nil
}

// A reason is the kind of an end, with its cause or nil.
type reason struct{ kind, by error }

// unlocked is the reason of most ends.
var unlocked = &reason{kind: ErrUnlocked}

// err is r as one error.
func (r *reason) err() error { return backend.Fail(r.kind, r.by) }

func reasonOf(kind, by error) *reason {
	if kind == ErrUnlocked && by == nil {
		return unlocked
	}
	return &reason{kind, by}
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
	if n.over != nil {
		return nil, false
	}
	n.over = reasonOf(kind, cause)
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
	if n.over == nil {
		return nil
	}
	return &Error{Op: "hold", Name: name, Kind: n.over.kind, Err: n.over.by}
}

func (n *ending) ended() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.over != nil
}

// whenDone returns the channel that end closes.
func (n *ending) whenDone() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.done != nil:
	case n.over != nil:
		return closedChan
	default:
		n.done = make(chan struct{})
	}
	return n.done
}

// tell has f called at the end of the lease on name, at once if that has been.
func (n *ending) tell(name string, f func(error)) {
	n.mu.Lock()
	if n.over == nil {
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
