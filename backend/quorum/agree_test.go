package quorum

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A shelf is the register of a node.
type shelf struct{ token uint64 }

func (s *shelf) Vote(context.Context, backend.Request, backend.Ballot) (*backend.Hold, error) {
	return nil, backend.ErrHeld
}

func (s *shelf) RaiseToken(_ context.Context, _ *backend.Hold, token uint64) error {
	s.token = max(s.token, token)
	return nil
}

// TestTokenIsChosenAgain has a request lose one of the two nodes that it has,
// before it holds the lock. Another client has the lock meanwhile, and so the
// third node offers a greater token. The hold has that one, also at the first.
func TestTokenIsChosenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shelves := []*shelf{{10}, {10}, {20}}
		b := &Backend{need: 2}
		for _, s := range shelves {
			b.nodes = append(b.nodes, &node{register: s})
		}
		h := b.newHold(t.Context(), backend.Request{TTL: time.Second}, 0)
		grant := func(i int) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.take(i, &backend.Hold{Request: h.r, Token: shelves[i].token})
		}
		grant(0)
		grant(1)
		(&observer{h, 1, 0}).Lost(nil)
		grant(2)
		synctest.Wait()
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.token != 20 || h.bearing() != 2 || shelves[0].token != 20 {
			t.Errorf("token %d on %d nodes, the first has %d; want 20 on 2", h.token, h.bearing(), shelves[0].token)
		}
	})
}
