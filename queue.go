package dlock

import "github.com/dlock-go/dlock/backend"

// A queue admits one exclusive entry or any number of shared ones at a time, first
// come, first served, neighbouring readers together. There is one for each name of a
// client, and one for each lease that is entered again. The client's mutex guards it.
type queue struct {
	writer     bool
	readers    int32
	head, tail *waiter
}

// A waiter is one place in the queue of a gate.
type waiter struct {
	mode       backend.Mode
	granted    bool
	tryOnly    bool          // from TryLock: it waits for an answer, not for the lock
	answered   bool          // the lock was held at some time since this began to wait
	lock       *lock         // which holds may be handed over to this waiter; nil: none
	lease      *Lease        // that was handed over, or nil
	err        error         // why the wait failed, or nil
	ready      chan struct{} // receives once, when the wait is over
	prev, next *waiter
}

// tryEnter admits a newcomer if nobody waits before it and its mode fits those inside.
func (g *queue) tryEnter(mode backend.Mode) bool {
	if g.head != nil || !g.admits(mode) {
		return false
	}
	g.enter(mode)
	return true
}

func (g *queue) admits(mode backend.Mode) bool {
	return !g.writer && (mode == backend.Shared || g.readers == 0)
}

func (g *queue) enter(mode backend.Mode) {
	if mode == backend.Exclusive {
		g.writer = true
	} else {
		g.readers++
	}
}

// leave ends an entry and admits whoever is next.
func (g *queue) leave(mode backend.Mode) {
	if mode == backend.Exclusive {
		g.writer = false
	} else {
		g.readers--
	}
	g.admit()
}

// downgrade makes the exclusive entry a shared one and lets in the readers
// that are next.
func (g *queue) downgrade() {
	g.writer = false
	g.readers++
	g.admit()
}

// admit lets in waiters from the head for as long as their mode fits those inside.
func (g *queue) admit() {
	for w := g.head; w != nil && g.admits(w.mode); w = g.head {
		g.remove(w)
		g.enter(w.mode)
		w.granted = true
		w.ready <- struct{}{}
	}
}

func (g *queue) enqueue(w *waiter) {
	w.prev, w.next = g.tail, nil
	if g.tail == nil {
		g.head = w
	} else {
		g.tail.next = w
	}
	g.tail = w
}

// withdraw removes w from the queue. If w has been admitted meanwhile, it leaves
// again, so that the next waiter gets the place.
func (g *queue) withdraw(w *waiter) {
	if w.granted {
		g.leave(w.mode)
		return
	}
	g.remove(w)
	g.admit()
}

// failAll ends the wait of everybody in the queue with err.
func (g *queue) failAll(err error) {
	for w := g.head; w != nil; w = g.head {
		g.remove(w)
		w.err = err
		w.ready <- struct{}{}
	}
}

func (g *queue) remove(w *waiter) {
	if w.prev == nil {
		g.head = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		g.tail = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next = nil, nil
}

// isEmpty reports whether nobody is inside.
func (g *queue) isEmpty() bool { return !g.writer && g.readers == 0 }

// isIdle reports whether nobody is inside or waiting.
func (g *queue) isIdle() bool { return g.isEmpty() && g.head == nil }
