package conformance

import (
	"context"
	"errors"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// deaf observes nothing.
type deaf struct{}

func (deaf) Queued()    {}
func (deaf) Lost(error) {}
func (deaf) Wanted()    {}

// A register is a backend that can be one of several, asked as package quorum
// asks it.
type register struct {
	*scenario
	backend.Backend
	backend.TokenRegister
	client string
	asked  int
}

// register returns a client of the backend, nil if it is no TokenRegister or
// several servers stand behind it that nobody could ask as one.
func (s *scenario) register(client string) *register {
	b := s.open().Backend
	t, ok := b.(backend.TokenRegister)
	if s.na(!ok, "the backend is no TokenRegister") {
		return nil
	}
	r := &register{scenario: s, Backend: b, TokenRegister: t, client: client}
	_, err := r.Vote(r.ctx, r.request(backend.Exclusive, false), backend.Ballot{Rejoin: never})
	if s.na(errors.Is(err, backend.ErrUnsupported), "several servers decide as one") {
		return nil
	}
	return r
}

// never is longer than any server of a test has kept its data.
const never = 1000 * time.Hour

func (r *register) request(mode backend.Mode, wait bool) backend.Request {
	r.asked++
	return backend.Request{Name: r.name, ID: backend.ID{Client: r.sub(r.client), Seq: uint64(r.asked)}, Mode: mode,
		TTL: 10 * r.TTL, Wait: wait, Observer: deaf{}}
}

// vote takes the lock and fails the test if it cannot.
func (r *register) vote(mode backend.Mode, v backend.Ballot) *backend.Hold {
	r.Helper()
	h, err := r.Vote(r.ctx, r.request(mode, false), v)
	r.ok(err)
	return h
}

// registerProposal proposes tokens: a new one is no less, unless the proposal
// is far ahead of the server's clock.
func registerProposal(s *scenario) {
	r := s.register("a")
	if r == nil {
		return
	}
	for _, mode := range []backend.Mode{backend.Exclusive, backend.Shared} {
		var h *backend.Hold
		r.eventually("a proposal is taken", func() bool { // unless another name's tokens are ahead of the clock
			last := r.vote(mode, backend.Ballot{})
			r.ok(r.Release(r.ctx, last))
			h = r.vote(mode, backend.Ballot{Token: last.Token + 10_000})
			r.ok(r.Release(r.ctx, h))
			return h.Token >= last.Token+10_000
		})
		far := h.Token + uint64(time.Hour.Microseconds())
		next := r.vote(mode, backend.Ballot{Token: far})
		r.must(next.Token > h.Token && next.Token < far, "token %d after %d and a proposal of %d", next.Token, h.Token, far)
		r.ok(r.Release(r.ctx, next))
	}
}

// registerRaise raises the token under a holder: the next one's is greater.
func registerRaise(s *scenario) {
	a, b := s.register("a"), s.register("b")
	if a == nil {
		return
	}
	for _, mode := range []backend.Mode{backend.Exclusive, backend.Shared} {
		h := a.vote(mode, backend.Ballot{})
		high := h.Token + uint64(time.Second.Microseconds())
		s.ok(a.RaiseToken(s.ctx, h, high))
		s.ok(a.RaiseToken(s.ctx, h, high-1)) // never back
		s.ok(a.Release(s.ctx, h))
		if err := a.RaiseToken(s.ctx, h, high+1); !errors.Is(err, backend.ErrLost) {
			s.Fatalf("raised by one who does not hold: %v", err)
		}
		next := b.vote(mode, backend.Ballot{})
		s.must(next.Token > high, "token %d came after %d", next.Token, high)
		s.ok(b.Release(s.ctx, next))
	}
}

// registerRejoin asks a server that has not remembered for long enough. It
// grants nothing, and queues nobody.
func registerRejoin(s *scenario) {
	r := s.register("a")
	if r == nil {
		return
	}
	for _, wait := range []bool{false, true} {
		_, err := r.Vote(s.ctx, r.request(backend.Exclusive, wait), backend.Ballot{Rejoin: never})
		var not *backend.NotReadyError
		s.must(errors.As(err, &not) && errors.Is(err, backend.ErrUnavailable), "the server voted: %v", err)
		s.must(not.In > 0 && not.In <= never, "it says that it will in %v", not.In)
	}
	s.must(s.Waiting(s.TB, s.name) == 0, "somebody waits")
	s.eventually("the server votes", func() bool {
		h, err := r.Vote(s.ctx, r.request(backend.Exclusive, false), backend.Ballot{Rejoin: time.Millisecond})
		return err == nil && r.Release(s.ctx, h) == nil
	})
}

// registerQueue waits for a vote behind a holder that raises its token.
func registerQueue(s *scenario) {
	a, b := s.register("a"), s.register("b")
	if a == nil {
		return
	}
	h := a.vote(backend.Exclusive, backend.Ballot{})
	type result struct {
		h   *backend.Hold
		err error
	}
	granted := make(chan result, 1)
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	go func() {
		next, err := b.Vote(ctx, b.request(backend.Exclusive, true), backend.Ballot{})
		granted <- result{next, err}
	}()
	s.queued(s.name, 1)
	high := h.Token + uint64(time.Second.Microseconds())
	s.ok(a.RaiseToken(s.ctx, h, high))
	s.ok(a.Release(s.ctx, h))
	next := <-granted
	s.ok(next.err)
	s.must(next.h.Token > high, "token %d came after %d", next.h.Token, high)
	s.ok(b.Release(s.ctx, next.h))
}
