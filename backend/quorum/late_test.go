package quorum

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A scripted is a node that does as it is told.
type scripted struct {
	backend.Backend
	register
	raise   error
	release func(context.Context) error
	renew   func(n int32) error
	renewed atomic.Int32 // how often it was asked to
}

func (n *scripted) RaiseToken(context.Context, *backend.Hold, uint64) error { return n.raise }

func (n *scripted) Release(ctx context.Context, _ *backend.Hold) error { return n.release(ctx) }

func (n *scripted) Renew(_ context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	err := n.renew(n.renewed.Add(1))
	for _, h := range holds {
		if err == nil {
			h.Sent, h.Granted = time.Now(), h.TTL
		}
		report(h, err)
	}
}

func (n *scripted) node() *node { return &node{Backend: n, register: n, renewer: n, made: time.Now()} }

// partNotTakenBack is a hold on three nodes, of which one has failed to take its token, and two fail to
// give their parts back.
func partNotTakenBack(t *testing.T) (*Backend, *hold) {
	ends := func(context.Context) error { return nil }
	fails := func(context.Context) error { return backend.ErrUnavailable }
	b := &Backend{need: 2, nodes: []*node{
		(&scripted{release: ends}).node(), (&scripted{release: fails}).node(),
		(&scripted{release: fails, raise: backend.ErrUnavailable}).node(),
	}}
	h := b.newHold(t.Context(), backend.Request{TTL: time.Second})
	h.mu.Lock()
	defer h.mu.Unlock()
	h.accept(0, &backend.Hold{Request: h.request, Token: 20})
	h.accept(1, &backend.Hold{Request: h.request, Token: 20})
	h.held = true
	h.accept(2, &backend.Hold{Request: h.request, Token: 10})
	return b, h
}

// TestReleaseBesideATokenThatWasNotTaken has a node of three fail to take a token, and then to give
// its part back. A hold that one of the others has released, and the third does not answer, is not
// known to be free: two nodes may have it.
func TestReleaseBesideATokenThatWasNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, h := partNotTakenBack(t)
		synctest.Wait()
		if err := b.Release(t.Context(), &backend.Hold{Request: h.request, State: h}); err == nil {
			t.Error("a hold is released that two of three nodes may have")
		}
		time.Sleep(2 * time.Second)
	})
}

// TestPartIsRenewedOnItsOwnAgain has a node that has let a request in late, for less than the TTL,
// fail to prolong that once. It is asked again while the part lasts: the next renewal of the hold
// comes later.
func TestPartIsRenewedOnItsOwnAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := &scripted{renew: func(n int32) error {
			if n == 1 {
				return backend.ErrUnavailable
			}
			return nil
		}}
		b := &Backend{need: 1, nodes: []*node{(&scripted{}).node(), late.node()}}
		h := b.newHold(t.Context(), backend.Request{TTL: time.Minute})
		h.mu.Lock()
		h.accept(0, &backend.Hold{Request: h.request, Token: 20, Sent: time.Now(), Granted: time.Minute})
		h.held = true
		h.accept(1, &backend.Hold{Request: h.request, Token: 20, Sent: time.Now(), Granted: 5 * time.Second, RenewIn: 100 * time.Millisecond})
		h.mu.Unlock()
		time.Sleep(5 * time.Second)
		if n := late.renewed.Load(); n < 2 {
			t.Errorf("it is asked %d times, and has run out", n)
		}
		h.end()
	})
}

// TestPartIsRenewedBesideAnObsoleteRenewal has a node lose a part while its renewal is under way, and
// let the hold in anew for less than the TTL. The new part is prolonged, though the answer about the
// old one comes later than it was to be.
func TestPartIsRenewedBesideAnObsoleteRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		n := &scripted{renew: func(n int32) error {
			if n == 1 {
				<-answer
				return backend.ErrLost
			}
			return nil
		}}
		b := &Backend{need: 1, nodes: []*node{(&scripted{}).node(), n.node()}}
		h := b.newHold(t.Context(), backend.Request{TTL: time.Minute})
		part := func(granted, in time.Duration) *backend.Hold {
			r := h.request
			r.ID.Seq = lastSeq.Add(1)
			return &backend.Hold{Request: r, Token: 20, Sent: time.Now(), Granted: granted, RenewIn: in}
		}
		h.mu.Lock()
		h.accept(0, part(time.Minute, 0))
		h.held = true
		h.accept(1, part(5*time.Second, 100*time.Millisecond))
		h.mu.Unlock()
		time.Sleep(150 * time.Millisecond)
		h.mu.Lock()
		h.clearVote(1, failed, backend.ErrLost)
		h.accept(1, part(5*time.Second, 100*time.Millisecond))
		h.mu.Unlock()
		time.Sleep(150 * time.Millisecond)
		close(answer)
		time.Sleep(5 * time.Second)
		if n := n.renewed.Load(); n < 2 {
			t.Error("the new part has run out")
		}
		h.end()
	})
}

// TestReleaseBesideAPartThatHasRunOut has a node of three fail to take a token, and then to give its
// part back, for longer than that lasts. It is as free as one that never had a part.
func TestReleaseBesideAPartThatHasRunOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, h := partNotTakenBack(t)
		time.Sleep(time.Minute) // the others are renewed
		if err := b.Release(t.Context(), &backend.Hold{Request: h.request, State: h}); err != nil {
			t.Error("one node has confirmed it, and one has had no part for a minute:", err)
		}
		time.Sleep(2 * time.Second)
	})
}

// An entering is a node that is told of entries.
type entering struct {
	scripted
	enter func() error
}

func (n *entering) Reenter(context.Context, *backend.Hold, int, int64) error { return n.enter() }

func (n *entering) node() *node { return &node{Backend: n, register: n, renewer: n, made: time.Now()} }

// TestEntryBesideALossAndAPartThatJoins has a third node join a hold while the first two are told of
// an entry, of which one has lost its part. Two nodes have the hold all the time: it is not lost.
func TestEntryBesideALossAndAPartThatJoins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		enters := func() error { return nil }
		b := &Backend{need: 2, nodes: []*node{
			(&entering{enter: enters}).node(),
			(&entering{enter: func() error { time.Sleep(20 * time.Millisecond); return backend.ErrLost }}).node(),
			(&entering{enter: enters}).node(),
		}}
		h := b.newHold(t.Context(), backend.Request{TTL: time.Minute})
		part := func() *backend.Hold {
			return &backend.Hold{Request: h.request, Token: 20, Sent: time.Now(), Granted: time.Minute}
		}
		h.mu.Lock()
		h.accept(0, part())
		h.accept(1, part())
		h.held, h.believed = true, deadline(h.lease())
		h.mu.Unlock()
		time.AfterFunc(10*time.Millisecond, func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.accept(2, part())
		})
		if err := b.Reenter(t.Context(), &backend.Hold{Request: h.request, State: h}, 2, 1); err != nil {
			t.Errorf("lost: %v, and an entry fails: %v", h.lost, err)
		}
		h.end()
	})
}

// TestEntryOfALostHoldIsToldAtOnce has a third node be asked for a hold that the others have lost.
func TestEntryOfALostHoldIsToldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loses := func() error { return backend.ErrLost }
		b := &Backend{need: 2, nodes: []*node{
			(&entering{enter: loses}).node(), (&entering{enter: loses}).node(), (&entering{enter: loses}).node(),
		}}
		h := b.newHold(t.Context(), backend.Request{TTL: time.Minute})
		part := func() *backend.Hold {
			return &backend.Hold{Request: h.request, Token: 20, Sent: time.Now(), Granted: time.Minute}
		}
		h.mu.Lock()
		h.accept(0, part())
		h.accept(1, part())
		h.held, h.believed = true, deadline(h.lease())
		h.newQuery(2, false)
		h.mu.Unlock()
		began := time.Now()
		err := b.Reenter(t.Context(), &backend.Hold{Request: h.request, State: h}, 2, 1)
		if took := time.Since(began); took > 0 {
			t.Errorf("%v, after %v", err, took)
		}
		h.end()
	})
}
