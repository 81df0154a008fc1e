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

// A waiter is one place in a queue.
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
func (q *queue) tryEnter(mode backend.Mode) bool {
	if q.head != nil || !q.admits(mode) {
		return false
	}
	q.enter(mode)
	return true
}

func (q *queue) admits(mode backend.Mode) bool {
	return !q.writer && (mode == backend.Shared || q.readers == 0)
}

func (q *queue) enter(mode backend.Mode) {
	if mode == backend.Exclusive {
		q.writer = true
	} else {
		q.readers++
	}
}

// leave ends an entry and admits whoever is next.
func (q *queue) leave(mode backend.Mode) {
	if mode == backend.Exclusive {
		q.writer = false
	} else {
		q.readers--
	}
	q.admit()
}

// downgrade makes the exclusive entry a shared one and lets in the readers
// that are next.
func (q *queue) downgrade() {
	q.writer = false
	q.readers++
	q.admit()
}

// admit lets in waiters from the head for as long as their mode fits those inside.
func (q *queue) admit() {
	for w := q.head; w != nil && q.admits(w.mode); w = q.head {
		q.remove(w)
		q.enter(w.mode)
		w.granted = true
		w.ready <- struct{}{}
	}
}

func (q *queue) enqueue(w *waiter) {
	w.prev, w.next = q.tail, nil
	if q.tail == nil {
		q.head = w
	} else {
		q.tail.next = w
	}
	q.tail = w
}

// withdraw removes w from the queue. If w has been admitted meanwhile, it leaves
// again, so that the next waiter gets the place.
func (q *queue) withdraw(w *waiter) {
	if w.granted {
		q.leave(w.mode)
		return
	}
	q.remove(w)
	q.admit()
}

// failAll ends the wait of everybody in the queue with err.
func (q *queue) failAll(err error) {
	for w := q.head; w != nil; w = q.head {
		q.remove(w)
		w.err = err
		w.ready <- struct{}{}
	}
}

func (q *queue) remove(w *waiter) {
	if w.prev == nil {
		q.head = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		q.tail = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next = nil, nil
}

// isEmpty reports whether nobody is inside.
func (q *queue) isEmpty() bool { return !q.writer && q.readers == 0 }

// isIdle reports whether nobody is inside or waiting.
func (q *queue) isIdle() bool { return q.isEmpty() && q.head == nil }
