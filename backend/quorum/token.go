package quorum

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// proposalLead is by how much a proposed token exceeds the clocks of the nodes, so that
// it still does when the request arrives, also from a busy machine. It leaves
// clocks that are behind most of backend.TokenLead.
const proposalLead = 20 * time.Millisecond

// A proposer says which token the nodes can all take. Its zero value expects
// their clocks to agree with ours.
type proposer struct {
	offset atomic.Int64 // µs of the greatest of the nodes' clocks beyond ours
}

// propose returns a token for a request that is sent now.
func (p *proposer) propose() uint64 {
	return uint64(time.Now().Add(proposalLead).UnixMicro() + p.offset.Load())
}

// learn takes the greatest token that nodes have offered, after they did not
// agree on one and it was not the one proposed.
func (p *proposer) learn(token uint64) {
	p.offset.Store(int64(token) - time.Now().UnixMicro())
}

// propose returns the token to propose to a node now. Nodes that are asked at about
// the same time are proposed the same one: if they take it, there is nothing
// to raise.
func (h *hold) propose() uint64 {
	now := h.b.proposer.propose()
	h.mu.Lock()
	defer h.mu.Unlock()
	if now > h.proposed+uint64(proposalLead.Microseconds())/2 {
		h.proposed = now
	}
	return h.proposed
}

// chooseToken chooses the token as soon as enough nodes have granted: the greatest
// that they offer. Until the lock is held it chooses again for each that is
// greater: some of the others may have been lost and granted to somebody else
// since. Called with h.mu held.
func (h *hold) chooseToken() {
	n, same, token := 0, true, uint64(0)
	for i := range h.votes {
		if c := h.votes[i].hold; c != nil {
			n++
			same = same && (token == 0 || token == c.Token)
			token = max(token, c.Token)
		}
	}
	if n < h.b.need {
		return
	}
	h.token = token
	if !same && token != h.proposed {
		h.b.proposer.learn(token)
	}
	for i := range h.votes {
		if h.votes[i].hold != nil {
			h.votes[i].counts = false
			h.confirmToken(i)
		}
	}
}

// confirmToken counts a grant once the node's register has the token of the hold.
// Called with h.mu held.
func (h *hold) confirmToken(i int) {
	v, n := &h.votes[i], h.b.nodes[i]
	if n.register == nil || v.hold.Token >= h.token {
		v.counts = true
		return
	}
	nh, token := v.hold, h.token
	h.b.janitor.Go(func(context.Context) { h.raiseToken(i, nh, *nh, token) })
}

// raiseToken writes the token to the register of a node. A node that does not take
// it does not count.
func (h *hold) raiseToken(i int, nh *backend.Hold, c backend.Hold, token uint64) {
	ctx, cancel := backend.Detach(h.waiting, answerLimit(h.request.TTL))
	defer cancel()
	err := h.b.nodes[i].register.RaiseToken(ctx, &c, token)
	h.mu.Lock()
	defer h.mu.Unlock()
	defer h.notify()
	v := &h.votes[i]
	switch {
	case v.hold != nh || h.over:
	case err == nil && token < h.token: // a greater one is under way
	case err == nil:
		v.counts = true
	default:
		v.clear(failed, err)
		h.releaseVote(i, nh)
	}
}
