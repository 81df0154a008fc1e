package simulation

import (
	"slices"
	"testing"
	"time"
)

// TestShelves has a quorum over servers in memory of which one, or all, give trouble.
func TestShelves(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	ops := slices.Repeat([]Op{{Pause: 50 * ms, Call: "lock", Names: []int{0}, Hold: s, Unlock: "live"}}, 40)
	for name, faults := range map[string][]Fault{
		"nothing": nil,
		"one is stopped, and has then forgotten all": {{Kind: "restart-empty", At: 5 * s, For: 2 * s, Client: -1, Server: 1}},
		"each is flushed in its turn": {
			{Kind: "flush", At: 5 * s, Client: -1}, {Kind: "flush", At: 6 * s, Client: -1, Server: 1}, {Kind: "flush", At: 7 * s, Client: -1, Server: 2},
		},
		"one client is cut off, refused and told nothing": {
			{Kind: "hole", At: 5 * s, For: 20 * s, Server: 0},
			{Kind: "cut", At: 10 * s, For: 2 * s, Server: 1},
			{Kind: "unanswered", At: 15 * s, For: 10 * s, Server: 1, Size: 10},
			{Kind: "delay", At: 30 * s, For: 10 * s, Server: 2, Size: s},
			{Kind: "reset", At: 45 * s, Server: 2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := &Plan{
				Backend: "quorum", Shelves: true, Servers: 3, Names: 1, TTL: 3 * s, Length: length, Latency: ms, Jitter: ms,
				MaxTTL: 5 * s, Skew: 500 * ms, Skews: []time.Duration{0, 200 * ms, -200 * ms},
				Clients: []Party{{Workers: [][]Op{ops}}, {Workers: [][]Op{ops}}}, Faults: faults,
			}
			if r := Run(t, p); len(r.Violations) > 0 || r.Grants < 10 {
				t.Errorf("%d grants, %v\n%s", r.Grants, r.Violations, r.Table(len(p.Clients)))
			}
		})
	}
}
