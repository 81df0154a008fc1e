package simulation

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestLodgers has clients of the library share the connections of one of them, of which one is closed while
// the others go on, and connections end.
func TestLodgers(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	ops := slices.Repeat([]Op{{Pause: 100 * ms, Call: "lock", Names: []int{0}, Hold: 300 * ms, Unlock: "live"}}, 60)
	for name, closed := range map[string]int{"the host is closed": 0, "a lodger is closed": 1} {
		for _, backend := range []string{"redis", "quorum"} {
			t.Run(backend+", "+name, func(t *testing.T) {
				p := &Plan{
					Seed: 1, Backend: backend, Servers: 1, Names: 1, TTL: 3 * s, Length: length, Latency: ms,
					Clients: []Party{{Workers: [][]Op{ops}}, {Workers: [][]Op{ops}, Lodges: 1}, {Workers: [][]Op{ops}, Lodges: 1}},
					Faults:  []Fault{{Kind: "reset", At: 20 * s}, {Kind: "mute", At: 30 * s}},
				}
				if backend == "quorum" {
					p.Servers = 3
				}
				p.Clients[closed].Close = 15 * s
				r := Run(t, p)
				late := func(e Event) bool {
					return e.Party != closed && e.At > 25*s && strings.HasPrefix(e.Text, "lock a: token")
				}
				if len(r.Violations) > 0 || !slices.ContainsFunc(r.History, late) {
					t.Errorf("%v\n%s", r.Violations, r.Table(len(p.Clients)))
				}
			})
		}
	}
}
