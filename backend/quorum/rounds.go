package quorum

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// The rounds of one call of Acquire: it asks the nodes in each, until they agree, or too few of them answer for
// good.
type rounds struct {
	b       *Backend
	request *backend.Request
	began   time.Time

	found       bool      // somebody has the lock
	answered    bool      // a node has answered that it does not vote yet
	last        verdict   // of the last round
	deniedSince time.Time // since when too few answer of the nodes that do not deny it, without the time in queues; zero: not so
	backoff     backend.Backoff
}

// next begins a round.
func (s *rounds) next(ctx context.Context, round int) *attempt {
	a := s.b.newAttempt(ctx, *s.request, round)
	a.found, a.unheard, a.firstBy = s.found, s.isUnheard(), s.began.Add(firstAnswer)
	if soonest := a.began.Add(answerMargin); a.firstBy.Before(soonest) {
		a.firstBy = soonest
	}
	if s.request.Wait && (s.last == split || s.b.needsAll() || s.b.contended.has(a.hash)) {
		a.enter(queueing)
	}
	return a
}

// awaitNext waits for the time of the round after a, which has ended with v and err. It fails where there is to be
// none.
func (s *rounds) awaitNext(ctx context.Context, a *attempt, v verdict, err error) error {
	s.found, s.last = a.found, v
	pause := rand.N(a.splitTimeout)
	if v == unavailable {
		readyIn, waits := a.readyIn()
		if s.endsWithoutNodes(ctx, a, waits, err) {
			return err
		}
		pause = s.pauseUntil(readyIn)
	} else {
		s.deniedSince = time.Time{}
	}
	switch {
	case v == ended:
		return err
	case s.request.Wait, v == split && time.Since(s.began) < tryLimit:
	case v == split || a.round > 0:
		return backend.ErrHeld
	default:
		return err
	}
	if err := s.b.pause(ctx, nil, pause, s.found); err != nil {
		return err
	}
	switch {
	case v != unavailable:
		return nil
	case s.isLate():
		return err
	case s.found && !s.b.needsAll():
		return s.b.awaitEnough(ctx, s.request.TTL, nil)
	}
	return nil
}

// endsWithoutNodes reports whether the call is over, as too few nodes can be asked, or grant it. Waits says that
// one of them does not vote yet.
func (s *rounds) endsWithoutNodes(ctx context.Context, a *attempt, waits bool, err error) bool {
	s.answered = s.answered || waits
	denied := kindOf(err) != backend.ErrUnavailable
	switch {
	case !denied:
		s.deniedSince = time.Time{}
	case s.deniedSince.IsZero():
		s.deniedSince = time.Now()
	default:
		s.deniedSince = s.deniedSince.Add(a.timeQueued())
	}
	if s.isLate() || denied && !a.awaitOthers(ctx, s.deniedSince, s.isUnheard()) {
		return true
	}
	if waits {
		s.request.Answered()
		s.deniedSince = time.Time{}
	}
	return false
}

// pauseUntil is how long to wait for nodes, of which one votes then. What they have said tells more than the limit of
// the caller, which is not waited for.
func (s *rounds) pauseUntil(readyIn time.Duration) time.Duration {
	pause := min(s.backoff.Next(), readyIn)
	if s.isUnheard() {
		pause = min(pause, firstAnswer-time.Since(s.began))
	}
	return pause
}

// isUnheard reports whether the quorum has not answered yet.
func (s *rounds) isUnheard() bool { return !s.found && !s.answered }

// isLate reports whether it has had all the time that a first answer may take.
func (s *rounds) isLate() bool { return s.isUnheard() && time.Since(s.began) >= firstAnswer }
