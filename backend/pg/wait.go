package pg

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// unansweredLimit bounds how long a request waits for a server that has never
// answered it.
const unansweredLimit = 10 * time.Second

// run makes a go on in a goroutine of its own.
func (a *ask) run() {
	b := a.backend
	b.mu.Lock()
	a.ctx, a.cancel = context.WithCancel(b.ctx)
	if a.interest == 0 {
		a.cancel()
	}
	b.mu.Unlock()
	if !b.janitor.Go(a.loop) {
		b.mu.Lock()
		defer b.mu.Unlock()
		a.settle(nil, backend.ErrClosed)
	}
}

// loop waits for the lock until there is an answer or nobody wants one.
func (a *ask) loop(closing context.Context) {
	pause := backend.Backoff{Min: 2 * time.Millisecond, Max: 250 * time.Millisecond}
	begun := time.Now()
	for {
		err := a.round(closing, &pause)
		answered := err == nil || err == errAgain || isHeld(err)
		if !answered && !a.knownHeld() && time.Since(begun) > unansweredLimit {
			a.fail(err)
			return
		}
		if !a.goesOn(err) {
			return
		}
		if !answered {
			backend.Sleep(a.ctx, pause.Next())
		}
	}
}

func (a *ask) knownHeld() bool {
	a.backend.mu.Lock()
	defer a.backend.mu.Unlock()
	return a.held
}

func (a *ask) foundHeld() {
	a.backend.mu.Lock()
	defer a.backend.mu.Unlock()
	a.noteHeld()
}

func (a *ask) fail(err error) {
	a.backend.mu.Lock()
	defer a.backend.mu.Unlock()
	a.settle(nil, err)
}

// round waits for the lock on a connection of its own, or, as long as it gets
// none, by word from those who give it back. Readers learn first whether the
// lock is held: some of them may not want to wait.
func (a *ask) round(closing context.Context, pause *backend.Backoff) error {
	if a.shared && !a.knownHeld() {
		return a.tryOnce()
	}
	select {
	case a.backend.slots <- struct{}{}:
		return a.park(closing, pause)
	default:
		return a.loiter(closing, pause)
	}
}

func (a *ask) tryOnce() error {
	t, err := a.begin(a.ctx)
	if err != nil {
		return err
	}
	<-t.call.done
	return a.tried(a.ctx, t)
}

// park waits for the lock in the server's queue for at most a slice. It has a
// slot, and gives it back unless it gets the lock.
func (a *ask) park(closing context.Context, pause *backend.Backoff) error {
	b := a.backend
	s, err := b.take(a.ctx, a.ttl)
	if err != nil {
		<-b.slots
		// The server may have no connection left for us but those we have.
		return a.retry(pause, err)
	}
	c := newCall(lockOp(a.shared), a.place.key)
	defer calls.Put(c)
	s.start(c)
	a.attend(closing, s, c)
	if c.err == nil {
		err = a.admitted(s, c)
	} else {
		err = a.refused(s, c)
	}
	if err != nil {
		b.putBack(s)
		<-b.slots
	}
	return err
}

// attend waits for the answer to c, and takes c back when nobody wants it any
// more.
func (a *ask) attend(closing context.Context, s *session, c *call) {
	select {
	case <-c.done:
		return
	case <-a.ctx.Done():
	}
	ctx, cancel := backend.Bound(closing, a.ttl)
	defer cancel()
	s.cancel(ctx)
	select {
	case <-c.done:
	case <-ctx.Done():
		s.kill(errSilent)
		<-c.done
	}
}

// admitted takes a lock that was waited for. If the wait was long the session
// is to be proven anew: its lease counts from when the wait began.
func (a *ask) admitted(s *session, c *call) error {
	sent := c.sent
	if time.Since(sent) > a.ttl/4 {
		proof := s.renew(time.Now())
		<-proof.done
		if proof.err != nil {
			s.kill(proof.err)
			return classify(proof.err)
		}
		sent = proof.sent
	}
	return a.granted(s, sent, c.value, true)
}

// refused takes the end of a wait without a lock. That the wait was too long,
// or was cancelled, is the server's word that the lock is held.
func (a *ask) refused(s *session, c *call) error {
	err := a.undone(s, c)
	switch codeOf(c.err) {
	case lockNotAvailable, queryCanceled, deadlockDetected:
		return backend.Fail(backend.ErrHeld, c.err)
	}
	return err
}
