//go:build linux

package file

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/dlock-go/dlock/backend"
	"golang.org/x/sys/unix"
)

// A waiter is one place in the queue for a lock.
type waiter struct {
	*lockFile
	mode     backend.Mode
	patience time.Duration // with somebody ahead who does not take a free lock
	ticket   int64         // the byte locked in the file; 0: none
	stalled  int64         // the ticket in front of the queue at a free lock; 0: none
	since    time.Time     // when stalled was seen first
	wake     chan struct{} // look again
	timer    *time.Timer   // wakes too; nil: never yet
	grant    *grant
}

// Pauses of a waiter. It looks again soon after each event because the kernel
// tells of a death just before it frees the locks of the dead. The longest
// pause is for events that get lost although none should.
const (
	firstPause   = 4 * time.Millisecond
	longestPause = 3 * time.Minute
	longestBlind = 20 * time.Millisecond // where there is no inotify
	foreignPause = 50 * time.Millisecond // of whose unlocking nobody hears
	leastTTL     = 200 * time.Millisecond
)

func newWaiter(l *lockFile, r backend.Request) *waiter {
	return &waiter{
		lockFile: l,
		mode:     r.Mode,
		patience: max(r.TTL, leastTTL) / 2,
		wake:     make(chan struct{}, 1),
	}
}

// wait waits in the queue until the lock is taken.
func (w *waiter) wait(ctx context.Context, n *notifier) (*grant, error) {
	pauses := backend.Backoff{Min: firstPause, Max: longestPause}
	stop, ok := n.watch(w.file, w.wake)
	if !ok {
		pauses.Max = longestBlind
	}
	defer stop()
	err := backend.Poll(ctx, pauses, w.wake, w.try)
	if w.timer != nil {
		w.timer.Stop()
	}
	if err != nil {
		w.close(w.ticket)
		return nil, err
	}
	unlockRecord(w.file, w.ticket)
	return w.grant, nil
}

// try takes the lock if it is this waiter's turn and the lock is free.
func (w *waiter) try(ctx context.Context) (bool, error) {
	if err := w.current(); err != nil {
		return false, err
	}
	c, err := w.read()
	if err == nil && w.ticket <= c.passed {
		err = w.enqueue(ctx, c)
	}
	if err != nil || w.ticket == 0 {
		return false, err
	}
	ahead, behind, err := findRecord(w.file, recordType(w.mode), c.firstTicket(), w.ticket-1)
	if err != nil {
		return false, err
	}
	if behind {
		return false, w.watchFront(c, ahead)
	}
	if held, err := w.held(w.mode); held || err != nil {
		return false, err
	}
	w.grant, err = w.take(w.mode)
	if w.grant == nil {
		w.lookAgain(foreignPause)
	}
	return w.grant != nil, err
}

// lookAgain wakes w after d.
func (w *waiter) lookAgain(d time.Duration) {
	if w.timer == nil {
		w.timer = time.AfterFunc(d, func() { wakeUp(w.wake) })
		return
	}
	w.timer.Reset(d)
}

// enqueue goes to the end of the queue, for the first time or because others
// had to pass over this waiter. It has no place yet, and looks again, if another
// program has locked all that is to come, as flock(2) does on some network file
// systems.
func (w *waiter) enqueue(ctx context.Context, c content) error {
	unlockRecord(w.file, w.ticket)
	w.ticket = 0
	for ticket := max(time.Now().UnixNano(), c.firstTicket()); ; {
		last, length, err := findLast(w.file, ticket)
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case length > 1 || last == lastTicket:
			w.lookAgain(foreignPause)
			return nil
		case length == 1:
			ticket = last + 1
			continue
		}
		if ok, err := lockRecord(w.file, recordType(w.mode), ticket); ok || err != nil {
			if ok {
				w.ticket = ticket
			}
			return err
		}
	}
}

// watchFront sees to it that nobody who is ahead, but stopped, holds up the
// queue for good. A free lock whose first waiter does not take it in time
// goes to the one after.
func (w *waiter) watchFront(c content, ahead int64) error {
	held, err := w.held(backend.Exclusive)
	if held || err != nil {
		w.stalled = 0
		return err
	}
	front, err := w.front(c, ahead)
	if front != w.stalled {
		w.stalled, w.since = front, time.Now()
	}
	if err != nil {
		return err
	}
	if wait := w.patience - time.Since(w.since); wait > 0 {
		w.lookAgain(wait)
		return nil
	}
	w.lookAgain(w.patience)
	return w.passOver(front)
}

// front returns the first ticket of the queue, of which ahead is one.
func (w *waiter) front(c content, ahead int64) (int64, error) {
	for {
		at, found, err := findRecord(w.file, unix.F_WRLCK, c.firstTicket(), ahead-1)
		if !found || err != nil {
			return ahead, err
		}
		ahead = at
	}
}

// passOver takes the turn from a ticket. Only the holder of the lock may write
// to the file, and only now is it certain that there was none.
func (w *waiter) passOver(ticket int64) error {
	ok, err := w.flock(unix.LOCK_EX)
	if !ok {
		return err
	}
	err = w.writePassed(ticket)
	w.unflock()
	w.signal()
	return err
}

func (w *waiter) writePassed(ticket int64) error {
	c, err := w.read()
	if err != nil || c.passed >= ticket {
		return err
	}
	c.passed = ticket
	return w.write(c)
}

// firstTicket is the first byte at which a waiter counts.
func (c content) firstTicket() int64 { return max(c.passed+1, firstTicket) }

// queued reports whether anybody waits whom a newcomer must not overtake.
func (l *lockFile) queued(mode backend.Mode) (bool, error) {
	c, err := l.read()
	if err != nil {
		return false, err
	}
	_, found, err := findRecord(l.file, recordType(mode), c.firstTicket(), lastTicket)
	return found, err
}

// busy reports whether a newcomer has to wait. It disturbs nobody.
func (l *lockFile) busy(mode backend.Mode) (bool, error) {
	if held, err := l.held(mode); held || err != nil {
		return held, err
	}
	return l.queued(mode)
}

// probe is busy for a name. A file that is not there is free.
func (d *directory) probe(name string, mode backend.Mode) (bool, error) {
	l, err := d.open(name, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer l.close()
	return l.busy(mode)
}
