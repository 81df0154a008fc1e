package pg

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// unansweredLimit bounds how long a request waits for a server that has never
// answered it.
const unansweredLimit = 10 * time.Second

// stay waits for the lock in the caller's goroutine, if there was a connection
// at hand to wait on: that spares the switches to another goroutine and back,
// which are most of what a hand-over between busy clients costs. Whatever is
// not that simple goes on in a goroutine of its own.
func (a *ask) stay(ctx context.Context, p *parking) {
	if p == nil || !p.runs(ctx) || p.call.err != nil || p.isOld() {
		a.run(p)
		return
	}
	if a.goesOn(a.unpark(p)) {
		a.run(nil)
	}
}

// run makes a go on in a goroutine of its own: with p, if that is not nil.
func (a *ask) run(p *parking) {
	b := a.backend
	b.mu.Lock()
	a.ctx, a.cancel = context.WithCancel(b.ctx)
	if a.interest == 0 {
		a.cancel()
	}
	b.mu.Unlock()
	loop := func(closing context.Context) { a.loop(closing, p) }
	if !b.janitor.Go(loop) {
		loop(b.ctx) // which has ended: it ends at once
	}
}

// loop waits for the lock until there is an answer or nobody wants one.
func (a *ask) loop(closing context.Context, p *parking) {
	pause := backend.Backoff{Min: 2 * time.Millisecond, Max: 250 * time.Millisecond}
	begun := time.Now()
	for {
		err := a.round(closing, &pause, p)
		p = nil
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

// round waits for the lock on a connection of its own, which may be p, or, as
// long as it gets none, by word from those who give it back. Readers learn first
// whether the lock is held: some of them may not want to wait.
func (a *ask) round(closing context.Context, pause *backend.Backoff, p *parking) error {
	switch {
	case p != nil:
		return a.attend(closing, p)
	case a.shared && !a.knownHeld():
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
	t.session.start(t.call)
	<-t.call.done
	return a.tried(a.ctx, t)
}

// park waits for the lock in the server's queue for at most a slice. It has a
// slot.
func (a *ask) park(closing context.Context, pause *backend.Backoff) error {
	s, err := a.backend.take(a.ctx, a.ttl)
	if err != nil {
		<-a.backend.slots
		// The server may have no connection left for us but those we have.
		return a.retry(pause, err)
	}
	p := a.parkOn(s)
	s.start(p.call)
	return a.attend(closing, p)
}

// attend waits for the answer to p, and takes p back when nobody wants it any
// more.
func (a *ask) attend(closing context.Context, p *parking) error {
	if !p.hears(a.ctx) {
		a.takeBack(closing, p)
	}
	return a.unpark(p)
}

func (a *ask) takeBack(closing context.Context, p *parking) {
	ctx, cancel := backend.Bound(closing, a.ttl)
	defer cancel()
	p.session.cancel(ctx)
	if !p.hears(ctx) {
		p.session.kill(errSilent)
		p.hears(context.Background())
	}
}

// unpark takes the answer to p, and gives back what was needed for it unless
// that is the lock.
func (a *ask) unpark(p *parking) (err error) {
	c, s := p.call, p.session
	defer calls.Put(c)
	if s.renumber(c); c.err == nil {
		err = a.admitted(s, c)
	} else {
		err = a.refused(s, c)
	}
	if err != nil {
		a.backend.putBack(s)
		<-a.backend.slots
	}
	return err
}

// admitted takes a lock that was waited for. If the wait was long the session
// is to be proven anew: its lease counts from when the wait began.
func (a *ask) admitted(s *session, c *call) error {
	sent := c.sent
	if isOld(sent, a.ttl) {
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
