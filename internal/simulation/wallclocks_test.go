package simulation

import (
	"slices"
	"testing"
	"time"
)

// TestWallClocks has the clocks of clients be wrong by most of a day, either way.
func TestWallClocks(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	ops := slices.Repeat([]Op{{Pause: 500 * ms, Call: "lock", Names: []int{0}, Hold: 100 * ms, Unlock: "live"}}, 40)
	for _, ahead := range []time.Duration{-20 * time.Hour, 20 * time.Hour} {
		for backend, servers := range map[string]int{"redis": 1, "quorum": 3} {
			t.Run(backend+", "+ahead.String(), func(t *testing.T) {
				r := Run(t, &Plan{
					Seed: 4, Backend: backend, Servers: servers, Names: 1, TTL: 3 * s, Length: length, Latency: ms, Ahead: ahead,
					Clients: []Party{{Workers: [][]Op{ops}}, {Workers: [][]Op{ops}}},
				})
				if len(r.Violations) > 0 || r.Grants != 2*len(ops) {
					t.Errorf("%d grants, %v\n%s", r.Grants, r.Violations, r.Table(2))
				}
			})
		}
	}
}
