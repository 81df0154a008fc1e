// Package queue decides which goroutine of a client is next at a lock: first come,
// first served, neighbouring readers together.
//
// It knows waiters and how many are inside, and nothing of holds or servers. There is
// one queue for each name of a client, and one for each lease that is entered again.
package queue

import "github.com/dlock-go/dlock/backend"

// A Queue admits one exclusive entry or any number of shared ones at a time. The zero
// value is empty.
//
// A mutex of the caller guards a Queue: it is held in every call but Waiter.Wait.
type Queue[T any] struct {
	writer     bool
	readers    int32
	unanswered bool // a waiter does not know yet whether the lock is held
	head, tail *Waiter[T]
}

// TryEnter admits a newcomer if nobody waits before it and its mode fits those inside.
func (q *Queue[T]) TryEnter(mode backend.Mode) bool {
	if q.head != nil || !q.admits(mode) {
		return false
	}
	q.enter(mode)
	return true
}

func (q *Queue[T]) admits(mode backend.Mode) bool {
	return !q.writer && (mode == backend.Shared || q.readers == 0)
}

func (q *Queue[T]) enter(mode backend.Mode) {
	if mode == backend.Exclusive {
		q.writer = true
	} else {
		q.readers++
	}
}

// Leave ends an entry and admits whoever is next.
func (q *Queue[T]) Leave(mode backend.Mode) {
	if mode == backend.Exclusive {
		q.writer = false
	} else {
		q.readers--
	}
	q.admit()
}

// Downgrade makes the exclusive entry a shared one and admits the readers that are
// next.
func (q *Queue[T]) Downgrade() {
	q.writer = false
	q.readers++
	q.admit()
}

// admit admits waiters from the head for as long as their mode fits those inside.
func (q *Queue[T]) admit() {
	for w := q.head; w != nil && q.admits(w.mode); w = q.head {
		q.enter(w.mode)
		q.end(w, admitted, nil)
	}
}

// Join puts w at the end of the queue. Waiter.Wait follows.
func (q *Queue[T]) Join(w *Waiter[T]) {
	q.unanswered = q.unanswered || !w.Answered()
	w.prev = q.tail
	if q.tail == nil {
		q.head = w
	} else {
		q.tail.next = w
	}
	q.tail = w
}

// First returns the waiter that is next, nil if nobody waits.
func (q *Queue[T]) First() *Waiter[T] { return q.head }

// HandOver gives the exclusive entry to the first waiter, which also asked for an
// exclusive one. The caller has put into its Value what goes with it.
func (q *Queue[T]) HandOver() { q.end(q.head, handedOver, nil) }

// Withdraw ends the wait of w. If w has been admitted meanwhile, it leaves again, so that
// the next waiter gets the place. Withdraw reports false if the place was handed over to
// w, which keeps it, or if the wait had failed.
func (q *Queue[T]) Withdraw(w *Waiter[T]) bool {
	if w.state == waiting {
		q.remove(w)
		q.admit()
		return true
	}
	<-w.ready
	if w.state == admitted {
		q.Leave(w.mode)
	}
	return w.state == admitted
}

// NoteHeld tells the waiters that the lock is held. Those that only wanted to know
// that fail with backend.ErrHeld.
func (q *Queue[T]) NoteHeld() {
	if !q.unanswered {
		return
	}
	q.unanswered = false
	for w := q.head; w != nil; {
		next := w.next
		w.answered.Store(true)
		if w.tryOnly {
			q.end(w, failed, backend.ErrHeld)
		}
		w = next
	}
	q.admit()
}

// FailAll ends every wait with err.
func (q *Queue[T]) FailAll(err error) {
	for q.head != nil {
		q.end(q.head, failed, err)
	}
}

// end takes w out of the queue and ends its wait.
func (q *Queue[T]) end(w *Waiter[T], s state, err error) {
	q.remove(w)
	w.state, w.err = s, err
	w.ready <- struct{}{}
}

func (q *Queue[T]) remove(w *Waiter[T]) {
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

// IsEmpty reports whether nobody is inside.
func (q *Queue[T]) IsEmpty() bool { return !q.writer && q.readers == 0 }

// IsIdle reports whether nobody is inside or waiting.
func (q *Queue[T]) IsIdle() bool { return q.IsEmpty() && q.head == nil }
