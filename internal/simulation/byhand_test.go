package simulation

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// TestByHand has somebody do something to a key of a lock that is held for long by one client, and waited for by
// another. What takes no hold away costs no lease; what does is noticed with the next renewal, and the other gets the
// lock. A part of all plans has that.
func TestByHand(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	for deed, costs := range map[int]bool{
		persist: false, expireLater: false, expireSooner: true, renameAway: true, restore: false,
	} {
		t.Run(fmt.Sprintf("deed %d", deed), func(t *testing.T) {
			p := &Plan{
				Seed: 4, Backend: "redis", Servers: 1, Names: 1, TTL: 10 * s, Length: length, Latency: ms,
				Clients: []Party{
					{Workers: [][]Op{{{Call: "lock", Names: []int{0}, Hold: 40 * s, Unlock: "live"}}}},
					{Workers: [][]Op{{{Pause: 30 * s, Call: "lock", Names: []int{0}, Unlock: "live"}}}},
				},
				Faults: []Fault{{Kind: "by-hand", At: 15 * s, For: 2 * s, Client: -1, Steps: deed}},
			}
			r := Run(t, p)
			if len(r.Violations) > 0 || !r.says("by hand") || r.says("c0 exclusive") || r.says("lost") != costs || r.Grants != 2 {
				t.Errorf("%d grants, %v\n%s", r.Grants, r.Violations, r.Table(2))
			}
		})
	}
	t.Run("another database", func(t *testing.T) {
		ops := slices.Repeat([]Op{{Pause: 300 * ms, Call: "lock", Names: []int{0}, Hold: 100 * ms, Unlock: "live"}}, 80)
		r := Run(t, &Plan{
			Seed: 4, Backend: "redis", Servers: 1, Names: 1, TTL: 3 * s, Length: length, Latency: ms,
			Clients: []Party{{Workers: [][]Op{ops}}, {Workers: [][]Op{ops}}},
			Faults:  []Fault{{Kind: "swap", At: 15 * s, For: 10 * s, Client: -1, Way: 1}},
		})
		if len(r.Violations) > 0 || !r.says("the database is back") || r.Grants < 100 {
			t.Errorf("%d grants, %v\n%s", r.Grants, r.Violations, r.Table(2))
		}
	})
	for kind, least := range map[string]int{"by-hand": 8, "swap": 1} {
		if n := plansWith(kind); n < least || n > 60 {
			t.Errorf("%d of 1000 plans have %s", n, kind)
		}
	}
}
