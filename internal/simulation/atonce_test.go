package simulation

import (
	"testing"
	"time"
)

// Each two calls on one lease may come at the same moment, or one before the other is answered,
// while a third unlocks it.
func TestAtOnce(t *testing.T) {
	calls := []string{"unlock", "outer", "downgrade", "look", "close"}
	for backend, servers := range map[string]int{"memory": 1, "redis": 1, "quorum": 3} {
		for _, one := range calls {
			for _, other := range calls {
				for _, after := range []time.Duration{0, time.Millisecond, 2 * time.Millisecond} {
					p := &Plan{
						Backend: backend, Servers: servers, Latency: time.Millisecond, Names: 1, TTL: 10 * time.Second, Length: length,
						Clients: []Party{{Workers: [][]Op{{endsAtOnce(one, other, after)}}}},
					}
					if r := Run(t, p); len(r.Violations) > 0 {
						t.Errorf("%s on %s, and %s after %v: %v\n%s", one, backend, other, after, r.Violations, r.Table(1))
					}
				}
			}
		}
	}
}

// endsAtOnce is an op whose lease ends beside two calls.
func endsAtOnce(one, other string, after time.Duration) Op {
	op := Op{Call: "lock", Names: []int{0}, Wait: time.Second, Hold: 10 * time.Millisecond, Unlock: "live"}
	ends := op
	ends.AtOnce = []Beside{{one, 0}, {other, after}, {"unlock", 2 * after}}
	if one != "outer" && other != "outer" {
		return ends
	}
	op.Inside = []Op{ends}
	return op
}
