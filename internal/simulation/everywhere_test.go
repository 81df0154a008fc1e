package simulation

import (
	"slices"
	"testing"
)

// What concerns a single server happens at one: everywhere it would not happen, and still be an excuse.
func TestEverywhere(t *testing.T) {
	all := 0
	for _, backend := range []string{"redis", "sentinel", "cluster", "quorum"} {
		for seed := uint64(815000000); seed < 815000500; seed++ {
			for _, f := range NewPlan(seed, backend).Faults {
				switch {
				case f.Server != everywhere:
				case !slices.Contains(networks, f.Kind) || f.Trigger != nil:
					t.Errorf("%s %d: %s happens nowhere", backend, seed, f.name())
				default:
					all++
				}
			}
		}
	}
	if all < 100 {
		t.Errorf("%d faults are everywhere", all)
	}
}
