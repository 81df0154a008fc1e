package pg

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A try is an attempt that does not wait: for the lock, or to join readers who
// have it already. A session that has a shared lock gets it again whoever
// waits, so that writers of other clients would starve; whether readers may
// join is asked by a session that does not have it.
type try struct {
	session *session
	call    *call
	readers *grant // to be joined; nil: none
}

// begin makes a try, for the caller to send.
func (a *ask) begin(ctx context.Context) (*try, error) {
	b := a.backend
	t := &try{}
	o, to := tryOp(a.shared), holding
	if a.shared {
		b.mu.Lock()
		t.readers = a.place.readers(a.ttl)
		b.mu.Unlock()
	}
	if t.readers != nil {
		o, to = probe, probing
	}
	var err error
	if t.session, err = b.shared(ctx, line{a.ttl, to}); err != nil {
		return nil, err
	}
	t.call = newCall(o, a.place.key)
	return t, nil
}

// tried takes the answer to a try. Its error is ErrHeld if the lock is held.
func (a *ask) tried(ctx context.Context, t *try) error {
	c, s := t.call, t.session
	defer calls.Put(c)
	if c.err == nil && c.value != 0 && t.readers == nil {
		if s.renumber(c); c.err == nil {
			return a.granted(s, c.sent, c.value, false)
		}
	}
	err := a.undone(s, c)
	a.backend.leave(s)
	switch {
	case err != nil:
		return err
	case c.value == 0:
		return backend.ErrHeld
	}
	return a.joined(ctx, t.readers)
}

// undone gives back what c may have taken although it failed, and returns why
// it failed.
func (a *ask) undone(s *session, c *call) error {
	if c.err == nil {
		return nil
	}
	if o := c.op.undo(); o != ops && s.survived(c.err) {
		u := newCall(o, c.arg)
		s.start(u)
		<-u.done
		if u.err != nil && codeOf(u.err) != outOfMemory { // for the word to others: it was given back by then
			s.kill(u.err)
		}
	}
	return classify(c.err)
}

// joined adds those of a to the readers that g has, once the lease of g has
// been proven lately.
func (a *ask) joined(ctx context.Context, g *grant) error {
	fresh := time.Now()
	if !a.fixed {
		fresh = fresh.Add(-a.ttl / 10)
	}
	proof := g.session.renew(fresh)
	select {
	case <-proof.done:
	case <-ctx.Done():
		return backend.WaitEnded(ctx, false)
	}
	b := a.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	if g.over || g.pending != nil || proof.err != nil {
		return errAgain
	}
	g.sent = proof.sent
	a.settle(g, nil)
	return nil
}

// granted answers a with a lock that s has got.
func (a *ask) granted(s *session, sent time.Time, number int64, parker bool) error {
	b := a.backend
	b.mu.Lock()
	if _, lives := b.live[s]; !lives {
		b.mu.Unlock()
		return backend.Fail(backend.ErrUnavailable, errSilent)
	}
	g := &grant{place: a.place, session: s, shared: a.shared, token: s.epoch | uint64(number), sent: sent}
	g.holds = g.room[:0]
	s.parker = parker
	s.grants[g] = struct{}{}
	g.place.grants = append(g.place.grants, g)
	unwanted := a.interest == 0
	if unwanted {
		g.pending = newOutcome()
	}
	a.settle(g, nil)
	b.mu.Unlock()
	if unwanted {
		g.session.start(g.unlock())
	}
	return nil
}
