package quorum

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// proposalLead is by how much a proposed token exceeds what the clocks of the nodes are
// expected to say when the request arrives, also from a busy machine. It leaves
// clocks that are behind most of backend.TokenLead.
const proposalLead = 20 * time.Millisecond

// A proposer says which token the nodes can all take. Its zero value expects
// their clocks to agree with ours, and the nodes to be near.
type proposer struct {
	offset atomic.Int64 // µs of the nodes' greatest clock beyond ours, and of the way there
	taken  atomic.Bool  // a node has taken the last proposal, by its own clock
}

// propose returns a token for a request that is sent now.
func (p *proposer) propose() uint64 {
	return uint64(time.Now().Add(proposalLead).UnixMicro() + p.offset.Load())
}

// learn takes the greatest token that nodes have offered, after they did not
// agree on one and it was not the one proposed, and when that was proposed.
func (p *proposer) learn(token uint64, proposed time.Time) {
	p.offset.Store(int64(token) - proposed.UnixMicro())
}

// propose is proposeNow for a caller without h.mu.
func (h *hold) propose() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.proposeNow()
}

// proposeNow returns the token to propose to a node now. Nodes that are asked at about
// the same time are proposed the same one: if they take it, there is nothing
// to raise. Called with h.mu held.
func (h *hold) proposeNow() uint64 {
	if now := h.b.proposer.propose(); now > h.proposed+uint64(proposalLead.Microseconds())/2 {
		h.proposed, h.proposedAt = now, time.Now()
	}
	return h.proposed
}

// proposeToFront has the front, which has let this request in, take the token that the
// others are about to be proposed. It is told at the same time as they are asked, so that
// the hold does not wait for another round trip. If the front's own token is far enough
// ahead, the others are proposed that one. Called with h.mu held.
//
// A node that is told a token does not compare it with its clock. So nothing is told that
// is far ahead of what the front has said itself, nor before a node has taken a proposal:
// our clock may be wrong. Readers share a token that is older.
func (h *hold) proposeToFront() {
	v, n := &h.votes[h.front], h.b.nodes[h.front]
	if n.register == nil || h.request.Mode != backend.Exclusive {
		return
	}
	if v.hold.Token > h.proposed {
		h.proposed, h.proposedAt = v.hold.Token, time.Time{}
	}
	token := h.proposeNow()
	most := v.hold.Token + uint64((time.Duration(n.pace.Load()) + backend.TokenLead).Microseconds())
	if h.b.proposer.taken.Load() && token > v.offered() && token <= most {
		h.raise(h.front, token)
	}
}

// chooseToken chooses the token as soon as enough nodes have granted: the greatest
// that they offer. Until the lock is held it chooses again for each that is
// greater: some of the others may have been lost and granted to somebody else
// since. A node that is being told a greater one will know the hold by that. Called with
// h.mu held.
func (h *hold) chooseToken() {
	n, same, taken, token, told := 0, true, false, uint64(0), uint64(0)
	for i := range h.votes {
		if v := &h.votes[i]; v.hold != nil {
			n++
			same = same && (token == 0 || token == v.offered())
			taken = taken || v.hold.Token == h.proposed
			token, told = max(token, v.offered()), max(told, v.raising)
		}
	}
	if n < h.b.need {
		return
	}
	h.token = max(token, told)
	if !h.proposedAt.IsZero() {
		h.b.proposer.taken.Store(taken)
		if !same && token != h.proposed {
			h.b.proposer.learn(token, h.proposedAt)
		}
	}
	for i := range h.votes {
		if h.votes[i].hold != nil {
			h.votes[i].counts = false
			h.confirmToken(i)
		}
	}
}

// offered is the token that the node gives the hold, or the greater one that it has been
// told. Called with h.mu held, if the node has granted.
func (v *vote) offered() uint64 { return max(v.hold.Token, v.raised) }

// confirmToken counts a grant once the node's register has the token of the hold.
// Called with h.mu held.
func (h *hold) confirmToken(i int) {
	switch v := &h.votes[i]; {
	case h.b.nodes[i].register == nil || v.offered() >= h.token:
		v.counts = true
	case v.raising < h.token:
		h.raise(i, h.token)
	}
}

// raise tells node i a token in the background. Called with h.mu held.
func (h *hold) raise(i int, token uint64) {
	v := &h.votes[i]
	nh := v.hold
	v.raising = token
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
	case err == nil:
		v.raised = max(v.raised, token)
		h.acceptToken(i)
	default:
		h.clearVote(i, failed, err)
		h.releaseVote(i, nh)
	}
}
