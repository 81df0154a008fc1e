package quorum

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// TestLostForAMoment has a hold lose two of three nodes. A vote that was under way then
// does not make it one again.
func TestLostForAMoment(t *testing.T) {
	b := &Backend{need: 2, nodes: make([]*node, 3)}
	for i := range b.nodes {
		b.nodes[i] = new(node)
	}
	h := b.newHold(t.Context(), backend.Request{TTL: time.Second})
	grant := func(i int) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.accept(i, &backend.Hold{Request: h.request, Token: 1})
	}
	grant(0)
	grant(1)
	h.mu.Lock()
	h.held, h.reported = true, true // by a renewal
	h.mu.Unlock()
	(&query{h: h, node: 1}).Lost(nil)
	grant(2)
	r := &renewal{h: h, renewed: 2}
	if _, err := r.verdict(); err != backend.ErrLost {
		t.Errorf("a hold that had one node of three is renewed: %v", err)
	}
}
