package simulation

import (
	"slices"
	"testing"
	"time"
)

// TestForeignMembers has somebody else use the key of a lock at members of a quorum: at one of three nobody
// hears of it, and at two whoever asks is told.
func TestForeignMembers(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	ops := slices.Repeat([]Op{{Pause: 300 * ms, Call: "lock", Names: []int{0}, Hold: 100 * ms, Unlock: "live"}}, 80)
	for name, places := range map[string][]int{"one of three": {1}, "two of three": {0, 2}} {
		t.Run(name, func(t *testing.T) {
			p := &Plan{
				Seed: 2, Backend: "quorum", Servers: 3, Names: 1, TTL: 3 * s, Length: length, Latency: ms,
				Clients: []Party{{Workers: [][]Op{ops}}, {Workers: [][]Op{ops}}},
			}
			for _, place := range places {
				p.Faults = append(p.Faults, Fault{Kind: "foreign", At: 5 * s, For: 20 * s, Client: -1, Server: place})
			}
			r := Run(t, p)
			told := r.Coverage["a conflict told × lock"]
			if len(r.Violations) > 0 || told > 0 != (len(places) > 1) || len(places) == 1 && r.Grants < 2*len(ops) {
				t.Errorf("%d grants, %d calls were told, %v\n%s", r.Grants, told, r.Violations, r.Table(len(p.Clients)))
			}
		})
	}
}
