package quorum

import (
	"context"
	"errors"
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

// propose returns the token to propose to a node now. Nodes that are asked at about
// the same time are proposed the same one, and those that join a hold its own: if they take
// it, there is nothing to tell. Called with h.mu held.
func (h *hold) propose() uint64 {
	if h.held {
		return h.token
	}
	if now := h.b.proposer.propose(); now > h.proposed+uint64(proposalLead.Microseconds())/2 {
		h.proposed, h.proposedAt, h.ofFront = now, time.Now(), false
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
	if n.register == nil || h.request.Mode != backend.Exclusive || v.counts {
		return
	}
	if v.hold.Token > h.proposed {
		h.proposed, h.proposedAt, h.ofFront = v.hold.Token, time.Now(), true
	}
	token := h.propose()
	most := v.hold.Token + uint64((time.Duration(n.pace.Load()) + backend.TokenLead).Microseconds())
	if h.b.proposer.taken.Load() && token > v.token && token <= most {
		h.tell(h.front, token)
	}
}

// chooseToken chooses the token as soon as enough nodes have granted: the greatest
// that they offer. Until the lock is held it chooses again with each of them: some of the
// others may have been lost and granted to somebody else since. A node that is being told a
// greater one will know the hold by that. Called with h.mu held.
func (h *hold) chooseToken() {
	n, same, taken, token, told := 0, true, false, uint64(0), uint64(0)
	for i := range h.votes {
		if v := &h.votes[i]; v.hold != nil {
			n++
			same = same && (token == 0 || token == v.token)
			taken = taken || v.hold.Token == h.proposed
			token, told = max(token, v.token), max(told, v.telling)
		}
	}
	if n < h.b.need {
		return
	}
	h.token = max(token, told)
	if !h.proposedAt.IsZero() && !h.ofFront {
		h.b.proposer.taken.Store(taken)
	}
	if !h.proposedAt.IsZero() && !same && token != h.proposed {
		h.b.proposer.learn(token, h.proposedAt)
	}
	for i := range h.votes {
		if h.votes[i].hold != nil {
			h.votes[i].counts = false
			h.confirmToken(i)
		}
	}
}

// confirmToken counts a grant once the node knows the hold by its token: so Break finds it
// there, and whoever comes later gets a greater one. A node that has joined a hold late may
// have a token of its own that is greater. Called with h.mu held.
func (h *hold) confirmToken(i int) {
	switch v := &h.votes[i]; {
	case h.b.nodes[i].register == nil || v.token == h.token:
		v.counts = true
	case v.telling != h.token:
		h.tell(i, h.token)
	}
}

// tell tells node i a token in the background. Called with h.mu held.
func (h *hold) tell(i int, token uint64) {
	v := &h.votes[i]
	nh, c := v.hold, *v.hold
	do := h.b.nodes[i].register.RaiseToken
	if token < v.token {
		do = h.b.nodes[i].register.LowerToken
	}
	v.telling = token
	limit := answerLimit(h.request.TTL)
	if !h.held && !h.request.Wait { // it has an end by then also where its grants came late
		limit = min(limit, max(time.Until(h.firstBy), answerMargin))
	}
	h.b.janitor.Go(func(context.Context) {
		ctx, cancel := backend.Detach(h.waiting, limit)
		defer cancel()
		h.told(i, nh, token, do(ctx, &c, token))
	})
}

// told takes the reply of a node that was told a token. One that has not taken it does
// not count, and has its part back. Of two tokens the last one says that: a node may know
// it already, and count.
func (h *hold) told(i int, nh *backend.Hold, token uint64, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	defer h.notify()
	v := &h.votes[i]
	lost := errors.Is(err, backend.ErrLost)
	switch {
	case v.hold != nh || h.over:
	case lost:
		h.clearVote(i, failed, err)
	case token != v.telling: // it has been told another one since
	case err == nil:
		v.token = token
		h.acceptToken(i)
	default:
		h.clearVote(i, failed, err)
		h.releaseVote(i, nh)
	}
}
