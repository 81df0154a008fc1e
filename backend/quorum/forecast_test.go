package quorum

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/backend"
)

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

// TestForecastBesideASlowClock has a node refuse each proposal because its clock is
// behind. That says nothing of the others.
func TestForecastBesideASlowClock(t *testing.T) {
	h := &hold{b: &Backend{need: 2, nodes: make([]*node, 2)}, seats: make([]seat, 2)}
	h.offer = h.b.forecast.propose()
	for i, token := range []uint64{h.offer, h.offer - uint64(time.Second.Microseconds())} {
		h.b.nodes[i] = new(node)
		h.seats[i].hold = &backend.Hold{Token: token}
	}
	h.agree()
	if h.token != h.offer || h.b.forecast.offset.Load() != 0 {
		t.Errorf("the token is %d of %d, the forecast is off by %d µs", h.token, h.offer, h.b.forecast.offset.Load())
	}
}
