package quorum

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A register is that of a node.
type register struct{ token uint64 }

func (s *register) Vote(context.Context, backend.Request, backend.Ballot) (*backend.Hold, error) {
	return nil, backend.ErrHeld
}

func (s *register) RaiseToken(_ context.Context, _ *backend.Hold, token uint64) error {
	s.token = max(s.token, token)
	return nil
}

func (s *register) LowerToken(_ context.Context, _ *backend.Hold, token uint64) error {
	s.token = token
	return nil
}

// TestTokenIsChosenAgain has a request lose one of the two nodes that it has,
// before it holds the lock. Another client has the lock meanwhile, and so the
// third node offers a greater token. The hold has that one, also at the first.
func TestTokenIsChosenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registers := []*register{{10}, {10}, {20}}
		b := &Backend{need: 2}
		for _, s := range registers {
			b.nodes = append(b.nodes, &node{register: s})
		}
		h := b.newHold(t.Context(), backend.Request{TTL: time.Second})
		grant := func(i int) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.accept(i, &backend.Hold{Request: h.request, Token: registers[i].token})
		}
		grant(0)
		grant(1)
		h.votes[1].query = &query{h: h, node: 1}
		h.votes[1].query.Lost(nil)
		grant(2)
		synctest.Wait()
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.token != 20 || h.countVotes() != 2 || registers[0].token != 20 {
			t.Errorf("token %d on %d nodes, the first has %d; want 20 on 2", h.token, h.countVotes(), registers[0].token)
		}
	})
}

// TestTokenBeingTold has a node be told a token that is greater than those of all others. It
// is the hold's: a node that is told a lesser one meanwhile would not know it by that.
func TestTokenBeingTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registers := []*register{{10}, {12}}
		b := &Backend{need: 2, nodes: []*node{{register: registers[0]}, {register: registers[1]}}}
		h := b.newHold(t.Context(), backend.Request{TTL: time.Second})
		h.mu.Lock()
		h.accept(0, &backend.Hold{Request: h.request, Token: 10})
		h.tell(0, 15)
		h.accept(1, &backend.Hold{Request: h.request, Token: 12})
		h.mu.Unlock()
		synctest.Wait()
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.countVotes() != 2 || registers[0].token != h.token || registers[1].token != h.token {
			t.Errorf("token %d on %d nodes, which know %d and %d", h.token, h.countVotes(), registers[0].token, registers[1].token)
		}
	})
}

// TestTokenToldTwice has a node be told two tokens, and the first fail after the second is known,
// as on a connection that breaks. The node counts: a vote that was given back for that would be
// missing from a hold that has been won with it.
func TestTokenToldTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := &lateFailure{fail: make(chan struct{})}
		b := &Backend{need: 2, nodes: []*node{{Backend: first, register: first}, {register: &register{}}}}
		h := b.newHold(t.Context(), backend.Request{TTL: time.Second})
		h.mu.Lock()
		h.accept(0, &backend.Hold{Request: h.request, Token: 10})
		h.tell(0, 15)
		h.mu.Unlock()
		synctest.Wait()
		h.mu.Lock()
		h.accept(1, &backend.Hold{Request: h.request, Token: 20})
		h.mu.Unlock()
		synctest.Wait()
		close(first.fail)
		synctest.Wait()
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.token != 20 || h.countVotes() != 2 || first.released {
			t.Errorf("%d nodes know the token %d, want 2 and 20; given back: %v", h.countVotes(), h.token, first.released)
		}
	})
}

// A lateFailure fails what it was told first, once it may.
type lateFailure struct {
	backend.Backend
	register
	told     bool
	fail     chan struct{}
	released bool
}

func (n *lateFailure) RaiseToken(ctx context.Context, h *backend.Hold, token uint64) error {
	if n.told {
		return n.register.RaiseToken(ctx, h, token)
	}
	n.told = true
	<-n.fail
	return backend.ErrUnavailable
}

func (n *lateFailure) Release(context.Context, *backend.Hold) error {
	n.released = true
	return nil
}

// TestProposal has nodes asked one after the other, as goroutines come to run.
// They must be able to agree, also after the request has waited.
func TestProposal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hold{b: new(Backend)}
		for range 3 {
			first := h.propose()
			for range 2 {
				time.Sleep(100 * time.Microsecond)
				if next := h.propose(); next != first {
					t.Errorf("nodes are proposed %d and %d", first, next)
				}
			}
			time.Sleep(time.Second)
			if late := uint64(time.Now().UnixMicro()); h.propose() <= late {
				t.Error("the proposal is in the past")
			}
			time.Sleep(time.Second)
		}
	})
}

// TestProposalBesideASlowClock has a node refuse each proposal because its clock is
// behind. That says nothing of the others.
func TestProposalBesideASlowClock(t *testing.T) {
	h := &hold{b: &Backend{need: 2, nodes: make([]*node, 2)}, votes: make([]vote, 2)}
	h.propose()
	for i, token := range []uint64{h.proposed, h.proposed - uint64(time.Second.Microseconds())} {
		h.b.nodes[i] = new(node)
		h.votes[i].hold, h.votes[i].token = &backend.Hold{Token: token}, token
	}
	h.chooseToken()
	if h.token != h.proposed || h.b.proposer.offset.Load() != 0 {
		t.Errorf("the token is %d of %d, the proposer is off by %d µs", h.token, h.proposed, h.b.proposer.offset.Load())
	}
}

// TestFrontIsTold has the front of a queue let a request in. It is told the token that the
// others are proposed, unless that may be ahead of the nodes' clocks.
func TestFrontIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			name   string
			offset time.Duration // of the proposer
			taken  bool          // the last proposal was
			ahead  time.Duration // by which the front's own token is
			mode   backend.Mode
			told   bool
		}{
			{"the clocks agree", 0, true, 0, backend.Exclusive, true},
			{"nobody has taken a proposal", 0, false, 0, backend.Exclusive, false},
			{"our clock is ahead", time.Hour, true, 0, backend.Exclusive, false},
			{"the front's token is ahead", 0, true, proposalLead, backend.Exclusive, false},
			{"a reader", 0, true, 0, backend.Shared, false},
		} {
			front := new(register)
			b := &Backend{need: 2, nodes: []*node{{register: front}, {register: new(register)}}}
			b.proposer.offset.Store(c.offset.Microseconds())
			b.proposer.taken.Store(c.taken)
			h := b.newHold(t.Context(), backend.Request{TTL: time.Second, Mode: c.mode})
			own := uint64(time.Now().Add(c.ahead).UnixMicro())
			h.mu.Lock()
			h.accept(0, &backend.Hold{Request: h.request, Token: own})
			h.proposeToFront()
			h.mu.Unlock()
			synctest.Wait()
			if told := front.token != 0; told != c.told || told && front.token != h.propose() {
				t.Errorf("%s: the front is told %d, the others %d", c.name, front.token, h.propose())
			}
			if c.ahead > 0 && h.propose() != own {
				t.Errorf("%s: the others are proposed %d, and not %d", c.name, h.propose(), own)
			}
		}
	})
}
