package quorum

import (
	"testing"
	"testing/synctest"
	"time"
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
