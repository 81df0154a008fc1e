package simulation

import (
	"testing"
	"time"
)

// Who asks to write under its own lease to read is seen to be refused, at once also where another works
// under that lease.
func TestUpgrades(t *testing.T) {
	names := []int{0}
	reads := Op{Call: "rlock", Names: names, Hold: 500 * time.Millisecond, Unlock: "live"}
	writes := Op{Pause: 100 * time.Millisecond, Call: "lock", Names: names, Wait: time.Second, Unlock: "live"}
	both := reads
	both.Inside, both.Together = []Op{reads, writes}, true
	for _, backend := range []string{"memory", "redis"} {
		r := Run(t, &Plan{
			Backend: backend, Servers: 1, Latency: time.Millisecond, Names: 1, TTL: 10 * time.Second, Length: length,
			Clients: []Party{{Workers: [][]Op{{both}}}},
		})
		if len(r.Violations) > 0 || r.Coverage["an upgrade refused"] == 0 {
			t.Errorf("%s: %v\n%s", backend, r.Violations, r.Table(1))
		}
	}
}
