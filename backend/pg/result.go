package pg

import (
	"time"

	"github.com/dlock-go/dlock/backend"
)

// receiveResult takes the answer to q. It keeps the session if that got the lock, and
// gives it back otherwise. The error is ErrHeld if the lock is held.
func (a *attempt) receiveResult(q *query) error {
	<-q.call.done
	s, c := q.session, q.call
	err := a.evaluate(q)
	if c.op.waits() {
		a.endSlice(err)
		return err
	}
	if err != nil || q.readers != nil {
		a.backend.stopUsing(s)
	}
	return err
}

func (a *attempt) evaluate(q *query) error {
	s, c := q.session, q.call
	if c.err == nil && c.value == disputed {
		a.resolveDispute(s, c)
	}
	if c.err == nil && q.readers == nil && s.isBehind(c.value) {
		s.drawAnew(c)
	}
	switch {
	case c.err != nil:
		return a.failed(s, c)
	case c.value == 0:
		return backend.ErrHeld
	case q.readers != nil:
		return a.joined(q.readers)
	case c.op.waits() && isOld(c.sent, a.ttl):
		// The lease counts from when the wait began: it is to be proven anew.
		proof := s.renew(time.Now())
		<-proof.done
		if proof.err != nil {
			s.kill(proof.err)
			return classify(proof.err)
		}
		return a.granted(s, proof.sent, c.value)
	}
	return a.granted(s, c.sent, c.value)
}

func isOld(sent time.Time, ttl time.Duration) bool { return time.Since(sent) > ttl/4 }

// failed returns the error of c, and gives back what c may have taken although it
// failed. What has failed with others' tries is tried again by itself. A wait that was too
// long or was cancelled means that the lock is held, unless it had the lock by then: then it
// is the sequence of tokens that could not be had. If the server has just ended the session,
// the locks of that session are free: the attempt tries once more on another one, as there
// may be several that have ended and were there when it began.
func (a *attempt) failed(s *session, c *call) error {
	had := false
	if o := c.op.undo(); o != ops && s.survives(c.err) {
		had = s.giveBack(o, c.arg)
	}
	if c.grouped {
		a.single = true
		return errAgain
	}
	if codeOf(c.err) == undefinedTable {
		a.backend.setAside(s)
	}
	if c.op.waits() && !had {
		switch codeOf(c.err) {
		case lockNotAvailable, queryCanceled, deadlockDetected:
			return backend.Fail(backend.ErrHeld, c.err)
		}
	}
	if s.made.Before(a.started) && s.endedByServer(c.err) {
		return errAgain
	}
	return classify(c.err)
}

// giveBack gives back what the session may have of key, and reports whether it had it. A
// cancel request that came late may hit the first statement.
func (s *session) giveBack(o op, key int64) bool {
	had, err := s.run(o, key, 0)
	for codeOf(err) == queryCanceled {
		had, err = s.run(o, key, 0)
	}
	switch {
	case err != nil:
		s.kill(err)
	case had == 1:
		s.notifyListeners(key)
	}
	return had == 1
}

// joined ends a by adding its requests to the readers of g. The session of g must have
// answered lately.
func (a *attempt) joined(g *grant) error {
	b := a.backend
	fresh := time.Now()
	b.mu.Lock()
	if !a.fixed { // by any of its requests
		fresh = fresh.Add(-a.ttl / 10)
	}
	b.mu.Unlock()
	proof := g.session.renew(fresh)
	<-proof.done
	a.withdraw()
	b.mu.Lock()
	defer b.mu.Unlock()
	if g.over || g.pending != nil || proof.err != nil {
		return errAgain
	}
	g.sent = proof.sent
	a.complete(g, nil)
	return nil
}

// granted ends a with a lock that s has got, and keeps.
func (a *attempt) granted(s *session, sent time.Time, number int64) error {
	if s == a.queueSession {
		a.queueSession = nil
	}
	a.withdraw()
	b := a.backend
	b.mu.Lock()
	if _, lives := b.live[s]; !lives {
		b.mu.Unlock()
		return backend.Fail(backend.ErrUnavailable, errSilent)
	}
	g := &grant{lock: a.lock, session: s, shared: a.shared, token: uint64(number), sent: sent}
	s.grants[g] = struct{}{}
	g.lock.grants = append(g.lock.grants, g)
	unwanted := a.requests == 0
	if unwanted {
		g.pending = newOutcome()
	}
	a.complete(g, nil)
	b.mu.Unlock()
	if unwanted {
		g.session.start(g.unlock())
	}
	return nil
}
