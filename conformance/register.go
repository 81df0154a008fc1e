package conformance

import (
	"context"
	"errors"
	"slices"
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

// registerKnown tells the server by which tokens others know its holds: Inspect shows
// each by its own, and Break ends that one and no other.
func registerKnown(s *scenario) {
	a := s.register("a")
	if a == nil {
		return
	}
	in, canInspect := a.Backend.(backend.Inspector)
	breaker, canBreak := a.Backend.(backend.Breaker)
	if s.na(!canInspect || !canBreak, "the backend is no Inspector or no Breaker") {
		return
	}
	lasts := func(h *backend.Hold) bool {
		err := a.RaiseToken(s.ctx, h, 1)
		s.must(err == nil || errors.Is(err, backend.ErrLost), "%v", err)
		return err == nil
	}
	known := func(want ...uint64) {
		s.Helper()
		said, err := in.Inspect(s.ctx, s.name)
		s.ok(err)
		var tokens []uint64
		for _, p := range said.Holders {
			tokens = append(tokens, p.Token)
		}
		slices.Sort(tokens)
		s.must(slices.Equal(tokens, want), "holds are known by %d, want %d", tokens, want)
	}
	breaks := func(token uint64, want error) {
		s.Helper()
		if err := breaker.Break(s.ctx, s.name, token); !errors.Is(err, want) {
			s.Fatalf("Break returned %v, want %v", err, want)
		}
	}
	second := uint64(time.Second.Microseconds())

	h := a.vote(backend.Exclusive, backend.Ballot{})
	s.ok(a.RaiseToken(s.ctx, h, h.Token+second))
	known(h.Token + second)
	breaks(h.Token, backend.ErrNotHeld)
	breaks(h.Token+second, nil)
	s.must(!lasts(h), "a broken hold stands")
	last := h.Token + second
	h = a.vote(backend.Exclusive, backend.Ballot{})
	s.must(h.Token > last, "token %d came after %d", h.Token, last)
	s.ok(a.LowerToken(s.ctx, h, h.Token-1))
	known(h.Token - 1)
	s.ok(a.RaiseToken(s.ctx, h, h.Token-2)) // late
	known(h.Token - 1)
	breaks(h.Token, backend.ErrNotHeld)
	breaks(h.Token-1, nil)
	s.must(!lasts(h), "a broken hold stands")

	plain := a.vote(backend.Shared, backend.Ballot{})
	raised, lowered := a.vote(backend.Shared, backend.Ballot{}), a.vote(backend.Shared, backend.Ballot{})
	s.must(raised.Token == plain.Token && lowered.Token == plain.Token, "readers have tokens %d, %d, %d", plain.Token, raised.Token, lowered.Token)
	high := plain.Token + second
	s.ok(a.RaiseToken(s.ctx, raised, high))
	s.ok(a.LowerToken(s.ctx, lowered, lowered.Token-1))
	next := a.vote(backend.Shared, backend.Ballot{})
	s.must(next.Token == high, "token %d, want %d", next.Token, high)
	known(plain.Token-1, plain.Token, high, high)
	breaks(plain.Token+1, backend.ErrNotHeld)
	breaks(high, nil)
	s.must(!lasts(raised) && !lasts(next) && lasts(plain) && lasts(lowered), "the holds of token %d were to be broken", high)
	after := a.vote(backend.Shared, backend.Ballot{})
	s.must(after.Token > high, "token %d was granted after %d had been broken", after.Token, high)
	s.ok(a.Release(s.ctx, after))
	breaks(plain.Token-1, nil)
	s.must(!lasts(lowered) && lasts(plain), "a hold of token %d was to be broken", plain.Token-1)
	s.ok(a.Release(s.ctx, plain))
	known()
	h = a.vote(backend.Exclusive, backend.Ballot{})
	s.must(h.Token > after.Token, "token %d came after %d", h.Token, after.Token)
	s.ok(a.Release(s.ctx, h))
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
