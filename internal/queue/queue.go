// Package queue decides which goroutine of a client is next at a lock: first come,
// first served, neighbouring readers together.
//
// It knows waiters and how many are inside, and nothing of holds or servers. There is
// one queue for each name of a client, and one for each lease that is entered again.
package queue

import (
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A Queue admits one exclusive entry or any number of shared ones at a time. The zero
// value is empty.
//
// A mutex of the caller guards a Queue: it is held in every call but Waiter.Wait.
type Queue[T any] struct {
	writer     bool
	readers    int32
	unanswered bool    // a waiter does not know yet whether the lock is held
	waits      answers // the calls inside that wait for the lock
	tries      answers // and those that only try

	// The waiters are linked, so that one in the middle leaves at no cost. container/list
	// would do that too, with a further allocation for each wait.
	first, last *Waiter[T]
	count       int
}

// TryEnter admits a newcomer if nobody waits before it and its mode fits those inside.
func (q *Queue[T]) TryEnter(mode backend.Mode) bool {
	if q.first != nil || !q.admits(mode) {
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
	for q.first != nil && q.admits(q.first.mode) {
		q.enter(q.first.mode)
		q.endWait(q.first, admitted, nil)
	}
}

// Join puts w at the end of the queue. Waiter.Wait follows.
func (q *Queue[T]) Join(w *Waiter[T]) {
	q.unanswered = q.unanswered || !w.Answered()
	w.joined = time.Now()
	if w.before = q.last; w.before == nil {
		q.first = w
	} else {
		w.before.next = w
	}
	q.last = w
	q.count++
}

// remove takes w, which waits, out of the queue.
func (q *Queue[T]) remove(w *Waiter[T]) {
	if w.before == nil {
		q.first = w.next
	} else {
		w.before.next = w.next
	}
	if w.next == nil {
		q.last = w.before
	} else {
		w.next.before = w.before
	}
	w.before, w.next = nil, nil
	q.count--
}

// Len returns how many wait.
func (q *Queue[T]) Len() int { return q.count }

// First returns the waiter that is next, nil if nobody waits.
func (q *Queue[T]) First() *Waiter[T] { return q.first }

// HandOver gives the exclusive entry to the first waiter, which also asked for an
// exclusive one. The caller has put into its Value what goes with it.
func (q *Queue[T]) HandOver() { q.endWait(q.first, handedOver, nil) }

// Withdraw ends the wait of w. If w has been admitted meanwhile, it leaves again, so that
// the next waiter gets the place. Withdraw reports false if the place was handed over to
// w, which keeps it, or if the wait had failed.
func (q *Queue[T]) Withdraw(w *Waiter[T]) bool {
	if w.state == waiting {
		q.remove(w)
		q.admit()
		return true
	}
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
	for w := q.first; w != nil; {
		next := w.next
		w.answered.Store(true)
		if w.tryOnly {
			q.endWait(w, failed, backend.ErrHeld)
		}
		w = next
	}
	q.admit()
}

// Answers are the calls of a kind that the server has answered without a word on who has the lock, and that wait on.
type answers struct {
	calls   int
	endedAt time.Time // when the last of them has ended that; zero: there was none
	wellAt  time.Time // likewise, of those that have not failed for want of answers
}

func (a *answers) end(failed bool) {
	a.calls--
	a.endedAt = time.Now()
	if !failed {
		a.wellAt = a.endedAt
	}
}

// silence is for how long one that has joined then, and waits behind such calls, has had no answer. Ended is when
// the last of those that count for it has ended.
func (a *answers) silence(joined, ended time.Time) time.Duration {
	switch {
	case a.calls > 0:
		return 0
	case ended.After(joined):
		return time.Since(ended)
	}
	return time.Since(joined)
}

func (q *Queue[T]) answers(tryOnly bool) *answers {
	if tryOnly {
		return &q.tries
	}
	return &q.waits
}

// NoteAnswered notes that the server has answered one inside, which waits on, without a word on who has the lock.
// Whoever waits behind that knows as much, and waits as long. TryOnly says that it only tries.
func (q *Queue[T]) NoteAnswered(tryOnly bool) {
	q.answers(tryOnly).calls++
}

// EndAnswered notes that one that was answered does not wait on any more. Failed says that it has ended for want of
// more answers.
func (q *Queue[T]) EndAnswered(tryOnly, failed bool) { q.answers(tryOnly).end(failed) }

// Silence is for how long w, or whom it waits behind, has had no answer. One that only tries waits for none that
// waits for the lock, and a try before it that has failed is no answer: of many, each would take as long as the first.
func (q *Queue[T]) Silence(w *Waiter[T]) time.Duration {
	if w.tryOnly {
		return q.tries.silence(w.joined, q.tries.wellAt)
	}
	return min(q.tries.silence(w.joined, q.tries.endedAt), q.waits.silence(w.joined, q.waits.endedAt))
}

// NoteRefused tells the waiters that only try, and came before that, that the server has refused a request of that
// mode which was sent then: it would have refused theirs.
func (q *Queue[T]) NoteRefused(mode backend.Mode, sent time.Time) {
	for w := q.first; w != nil; {
		next := w.next
		if w.tryOnly && w.joined.Before(sent) && (mode == backend.Shared || w.mode == backend.Exclusive) {
			q.endWait(w, failed, backend.ErrHeld)
		}
		w = next
	}
	q.admit()
}

// FailAll ends every wait with err.
func (q *Queue[T]) FailAll(err error) {
	for q.first != nil {
		q.endWait(q.first, failed, err)
	}
}

// endWait takes w out of the queue and tells it how its wait has ended.
func (q *Queue[T]) endWait(w *Waiter[T], s state, err error) {
	q.remove(w)
	w.state, w.err = s, err
	close(w.ready)
}

// IsEmpty reports whether nobody is inside.
func (q *Queue[T]) IsEmpty() bool { return !q.writer && q.readers == 0 }

// IsIdle reports whether nobody is inside or waiting.
func (q *Queue[T]) IsIdle() bool { return q.IsEmpty() && q.first == nil }
