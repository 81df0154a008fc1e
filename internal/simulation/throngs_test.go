package simulation

import (
	"testing"
	"time"
)

// Plans have tens of clients in one queue, and each gets the lock in its turn.
func TestThrongs(t *testing.T) {
	most := 0
	for seed := range uint64(1000) {
		most = max(most, len(NewPlan(seed, "").Clients))
	}
	if most < 40 {
		t.Errorf("%d clients at most", most)
	}
	const n = 40
	for _, backend := range []string{"redis", "quorum", "memory"} {
		t.Run(backend, func(t *testing.T) {
			p := usesOf()
			if p.Backend = backend; backend == "quorum" {
				p.Servers = 3
			}
			for range n {
				p.Clients = append(p.Clients, Party{Workers: [][]Op{{
					{Call: "lock", Names: []int{0}, Hold: time.Millisecond, Unlock: "live"},
					{Call: "lock", Names: []int{0}, Hold: time.Millisecond, Unlock: "live"},
				}}})
			}
			r := runUses(t, p)
			if r.Grants != 2*n {
				t.Errorf("%d leases, want %d", r.Grants, 2*n)
			}
		})
	}
}
