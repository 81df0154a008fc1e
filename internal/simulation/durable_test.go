package simulation

import (
	"slices"
	"testing"
	"time"
)

// TestDurable has a member of a quorum restart that has every write on disk before its reply, or had: it votes at
// once, or, with older data, not before nobody can believe in what it has forgotten.
func TestDurable(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	holds := Party{Workers: [][]Op{{{Pause: 2 * s, Call: "lock", Names: []int{0}, Hold: 20 * s, Unlock: "live"}}}}
	tries := slices.Repeat([]Op{{Pause: 200 * ms, Call: "trylock", Names: []int{0}, Unlock: "live"}}, 30)
	bare := Fault{Kind: "cut", At: s, For: 20 * s, Client: 0, Server: 0, Way: 2} // the first misses a member
	for name, p := range map[string]*Plan{
		"it votes at once": {
			Clients: []Party{{Workers: [][]Op{append([]Op{{Pause: 3 * s, Call: "lock", Names: []int{0}, Unlock: "live"}}, tries...)}}},
			Faults: []Fault{
				{Kind: "restart", At: 4 * s, For: 100 * ms, Client: -1, Server: 0},
				{Kind: "restart", At: 14 * s, For: 100 * ms, Client: -1, Server: 1},
				{Kind: "cut", At: 24 * s, For: 30 * s, Client: 0, Server: 2},
			},
		},
		"it has ceased, and restarts with what it had": {
			Clients: []Party{holds, {Workers: [][]Op{tries}}},
			Faults: []Fault{bare,
				{Kind: "cease", At: 500 * ms, Client: -1, Server: 1, Way: 1},
				{Kind: "restart-old", At: 1500 * ms, Size: s, For: 100 * ms, Client: -1, Server: 1},
			},
		},
		"it has ceased, as a connection has seen, and is durable again": {
			Clients: []Party{holds, {Workers: [][]Op{tries}}},
			Faults: []Fault{bare,
				{Kind: "cease", At: 500 * ms, Client: -1, Server: 1},
				{Kind: "restart-old", At: 1500 * ms, Size: s, For: 100 * ms, Client: -1, Server: 1},
			},
		},
		"it has restarted before anybody marked it": {
			Clients: []Party{{Workers: [][]Op{append([]Op{{Pause: 14 * s, Call: "lock", Names: []int{0}, Wait: s, Unlock: "live"}}, tries...)}}},
			Faults: []Fault{
				{Kind: "restart", At: 100 * ms, For: 100 * ms, Client: -1, Server: 0},
				{Kind: "cut", At: 3 * s, For: 50 * s, Client: 0, Server: 2, Way: 2},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p.Backend, p.Servers, p.Latency, p.Names, p.TTL, p.Length = "quorum", 3, ms, 1, 10*s, length
			p.Announced, p.Durable = true, []int{0, 1, 2}
			if r := Run(t, p); len(r.Violations) > 0 {
				t.Errorf("%v\n%s", r.Violations, r.Table(len(p.Clients)))
			}
		})
	}
}
