package quorum

import (
	"sync/atomic"
	"time"
)

// ahead is by how much a proposed token exceeds the clocks of the nodes, so that
// it still does when the request arrives, also from a busy machine. It leaves
// clocks that are behind most of backend.TokenLead.
const ahead = 20 * time.Millisecond

// A forecast says which token the nodes can all take. Its zero value expects
// their clocks to agree with ours.
type forecast struct {
	offset atomic.Int64 // µs of the greatest of the nodes' clocks beyond ours
}

// propose returns a token for a request that is sent now.
func (f *forecast) propose() uint64 {
	return uint64(time.Now().Add(ahead).UnixMicro() + f.offset.Load())
}

// propose returns the token to propose to a node now. Nodes that are asked at about
// the same time are proposed the same one: if they take it, there is nothing
// to raise.
func (h *hold) propose() uint64 {
	now := h.b.forecast.propose()
	h.mu.Lock()
	defer h.mu.Unlock()
	if now > h.offer+uint64(ahead.Microseconds())/2 {
		h.offer = now
	}
	return h.offer
}

// learn takes the greatest token that nodes have offered, after they did not
// agree on one and it was not the one proposed.
func (f *forecast) learn(token uint64) {
	f.offset.Store(int64(token) - time.Now().UnixMicro())
}
