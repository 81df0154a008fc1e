package file

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A waiter is one place in the queue for a lock.
type waiter struct {
	*lockFile
	request  backend.Request
	timeout  time.Duration // after which whoever is first and does not take a free lock is skipped
	position int64         // the byte locked in the file; 0: none
	label    place         // of what is published
	stalled  int64         // the first position of the queue at a free lock; 0: none
	since    time.Time     // when stalled was seen first
	looked   time.Time     // when stalled was looked for last
	wake     chan struct{} // look again
	timer    *time.Timer   // wakes too; nil: never yet
	hold     *hold
}

// Pauses of a waiter. It looks again soon after each event because the kernel
// tells of a death just before it frees the locks of the dead. The longest
// pause is for events that get lost although none should.
const (
	firstPause   = 4 * time.Millisecond
	longestPause = 3 * time.Minute
	longestBlind = 20 * time.Millisecond // where nobody tells of events
	foreignPause = 50 * time.Millisecond // where another program has the lock: nobody hears of its end
	leastTTL     = 200 * time.Millisecond
)

func newWaiter(l *lockFile, r backend.Request) *waiter {
	return &waiter{
		lockFile: l,
		request:  r,
		timeout:  max(r.TTL, leastTTL) / 2,
		wake:     make(chan struct{}, 1),
	}
}

// wait lets w wait until it has the lock, or ctx or the backend ends.
func (b *Backend) wait(ctx context.Context, w *waiter) (*hold, error) {
	h, err := w.wait(ctx, b.useNotifier())
	if err != nil && ctx.Err() != nil {
		err = backend.WaitEnded(ctx, true)
	}
	return h, err
}

// wait waits in the queue until the lock is taken.
func (w *waiter) wait(ctx context.Context, n *notifier) (*hold, error) {
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
		w.withdraw(w.label)
		w.close(w.position)
		return nil, err
	}
	w.leaveQueue()
	return w.hold, nil
}

// try takes the lock if it is this waiter's turn and the lock is free.
func (w *waiter) try(ctx context.Context) (bool, error) {
	if err := w.checkCurrent(); err != nil {
		return false, err
	}
	c, err := w.read()
	if err == nil && w.position <= c.skipped {
		err = w.joinQueue(ctx, c)
	}
	if err != nil || w.position == 0 {
		return false, err
	}
	ahead, length, err := findLock(w.lockFile, w.request.Mode, c.firstInQueue(), w.position-1)
	if err != nil {
		return false, err
	}
	if length > 0 {
		return false, w.watchFirst(c, ahead)
	}
	if held, err := w.isHeld(w.request.Mode); held || err != nil {
		return false, err
	}
	w.hold, err = w.tryLock(ctx, w.request)
	if w.hold == nil {
		w.wakeAfter(foreignPause)
	}
	if err == errJoining {
		return false, nil
	}
	return w.hold != nil, err
}

// joinQueue goes to the end of the queue, for the first time or because this waiter was
// skipped. It has no place yet, and looks again, if another program has locked all that
// is to come, as flock(2) does on some network file systems.
func (w *waiter) joinQueue(ctx context.Context, c content) error {
	w.leaveQueue()
	for at := max(time.Now().UnixNano(), c.firstInQueue()); ; {
		last, length, err := findLock(w.lockFile, backend.Exclusive, at, lastPosition)
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return backend.Cause(ctx)
		case length > 1 || last == lastPosition:
			w.wakeAfter(foreignPause)
			return nil
		case length == 1:
			at = last + 1
			continue
		}
		label := w.publish(w.request, at)
		ok, err := lockByte(w.lockFile, w.request.Mode, at)
		if ok {
			w.position, w.label = at, label
		} else {
			w.withdraw(label)
		}
		if ok || err != nil {
			return err
		}
	}
}

func (w *waiter) leaveQueue() {
	if w.position != 0 {
		unlockByte(w.lockFile, w.position)
		w.withdraw(w.label)
		w.position, w.label = 0, place{}
	}
}

// watchFirst sees to it that a process that was stopped while it waits ahead does not hold
// up the queue for ever: a free lock that the first waiter does not take in time goes to the
// next one.
func (w *waiter) watchFirst(c content, ahead int64) error {
	if time.Since(w.looked) < pauseOfLooks(w.timeout) {
		return nil
	}
	w.looked = time.Now()
	if held, err := w.isHeld(backend.Exclusive); held || err != nil {
		w.stalled = 0
		return err
	}
	first, err := firstLock(w.lockFile, c.firstInQueue(), ahead)
	if first != w.stalled {
		w.stalled, w.since = first, time.Now()
	}
	if err != nil {
		return err
	}
	if left := w.timeout - time.Since(w.since); left > 0 {
		w.wakeAfter(left)
		return nil
	}
	w.wakeAfter(w.timeout)
	return w.skip(first)
}

// skip takes the turn from the waiter at position. Only the holder of the lock may
// write to the file, and only now is it certain that there was none.
func (w *waiter) skip(position int64) error {
	ok, err := lockWhole(w.file, backend.Exclusive)
	if !ok {
		return err
	}
	c, err := w.read()
	if err == nil && c.skipped < position {
		c.skipped = position
		err = w.write(c, "")
	}
	unlockWhole(w.file)
	w.wakeWaiters()
	return err
}

// wakeAfter has w look again after d.
func (w *waiter) wakeAfter(d time.Duration) {
	if w.timer == nil {
		w.timer = time.AfterFunc(d, func() { wakeUp(w.wake) })
		return
	}
	w.timer.Reset(d)
}

func wakeUp(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
