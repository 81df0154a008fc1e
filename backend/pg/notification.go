package pg

import (
	"context"
	"strconv"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/jackc/pgx/v5/pgproto3"
)

// An attempt that has no slot in the server's queue listens. It has a shared lock on a
// second key, and whoever gives back the lock sends a notification if somebody has that.
// Nobody sends one for a client that has died, so each attempt also tries now and then
// without a notification.

// someoneListens is the answer of a statement that has given a lock back if another
// client may be listening for that.
const someoneListens = 2

// someoneWaits is the answer of a statement that has looked for those who wait.
const someoneWaits = 2

// listen waits for a notification and tries again then. If a slot has become free, it
// joins the queue instead.
func (a *attempt) listen() (*query, error) {
	if a.listenSession == nil || !a.listenSession.isAlive() {
		a.stopListening()
		if err := a.startListening(); err != nil {
			return nil, err
		}
	} else if err := a.awaitNotification(); err != nil {
		return nil, err
	}
	return a.sendTry()
}

// awaitNotification waits for a notification, at most until it is time to try without one.
// With a slot it changes the state, and returns errAgain.
func (a *attempt) awaitNotification() error {
	begun := time.Now()
	a.claim.due = a.since.Add(a.claim.pause)
	for {
		due := a.setDueMarks()
		poll := begun.Add(a.backend.pollInterval(a.claim.session != nil))
		if !time.Now().Before(poll) {
			return nil
		}
		select {
		case <-a.wake:
			return a.queueIfOffered()
		case <-a.ctx.Done():
			return backend.WaitEnded(a.ctx, true)
		case <-after(earlier(due, poll)):
		}
	}
}

// queueIfOffered has a join the queue if it has got a slot, and returns errAgain then.
func (a *attempt) queueIfOffered() error {
	a.backend.mu.Lock()
	defer a.backend.mu.Unlock()
	if !a.hasSlot {
		return nil
	}
	a.state = queued
	return errAgain
}

// startListening says on the server that somebody listens for the end of the lock.
func (a *attempt) startListening() error {
	b := a.backend
	s, err := b.useShared(a.ctx, forListening)
	if err != nil {
		return err
	}
	a.listenSession = s
	b.mu.Lock()
	if !a.hasSlot { // from before its session ended
		b.listeners = append(b.listeners, a)
	}
	b.mu.Unlock()
	if _, err := s.run(addListener, a.lock.key, 0); err != nil {
		a.stopListening()
		return classify(err)
	}
	return nil
}

// stopListening takes that back.
func (a *attempt) stopListening() {
	s := a.listenSession
	if s == nil {
		return
	}
	a.listenSession = nil
	b := a.backend
	b.mu.Lock()
	b.listeners = without(b.listeners, a)
	b.mu.Unlock()
	s.start(&call{op: removeListener, arg: a.lock.key, onAnswer: func(*call) { b.stopUsing(s) }})
}

// leastPoll and mostPoll bound pollInterval.
var leastPoll, mostPoll = 5 * time.Second, 25 * time.Second

// pollInterval is how long an attempt waits for a notification before it tries by
// itself: longer, the more of them listen. Who has a claim tries each second, as
// others give way to it.
func (b *Backend) pollInterval(claimed bool) time.Duration {
	if claimed {
		return backend.Jitter(time.Second)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return backend.Jitter(min(max(time.Duration(len(b.listeners))*time.Second, leastPoll), mostPoll))
}

// handleNotification wakes the attempt whose lock has become free.
func (b *Backend) handleNotification(m *pgproto3.NotificationResponse) {
	key, err := strconv.ParseInt(m.Payload, 10, 64)
	if m.Channel != wakeChannel || err != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if l := b.locks[key]; l != nil {
		l.notify()
	}
}

// notifyAll wakes all attempts that listen, after notifications may have been missed.
// It is called with b.mu held.
func (b *Backend) notifyAll() {
	for _, l := range b.locks {
		l.notify()
	}
}

func (l *localLock) notify() {
	if l.attempt != nil {
		l.attempt.signal()
	}
}

// signal wakes a, if it listens. It is called with b.mu held.
func (a *attempt) signal() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// notifyListeners sends the notification that a lock is free. It is a transaction of
// its own, so that it does not fail with another statement, and is sent again if it
// fails.
func (s *session) notifyListeners(key int64) { s.notifyUntilSent(key, backend.Backoff{}) }

func (s *session) notifyUntilSent(key int64, pause backend.Backoff) {
	s.start(&call{op: notify, arg: key, onAnswer: func(c *call) {
		if c.err == nil || !s.survives(c.err) {
			return
		}
		s.backend.janitor.Go(func(ctx context.Context) {
			if backend.Sleep(ctx, pause.Next()) {
				s.notifyUntilSent(key, pause)
			}
		})
	}})
}
