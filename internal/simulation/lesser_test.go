package simulation

import (
	"testing"
	"time"
)

// TestLesserReplica has a replica take over that has not acknowledged a lock which was taken just before: whoever has
// that believes in it for no longer than a renewal takes, the other has a greater token, and then one has it. A part
// of all plans has that.
func TestLesserReplica(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	for name, cluster := range map[string]bool{"one server": false, "a cluster": true} {
		t.Run(name, func(t *testing.T) {
			p := &Plan{
				Seed: 4, Backend: "redis", Servers: 1, Names: 1, TTL: 10 * s, Length: length, Latency: ms,
				Replica: true, Acks: true, Lag: ms, Cluster: cluster, Word: ms,
				Clients: []Party{
					{Workers: [][]Op{{{Pause: 10 * s, Call: "lock", Names: []int{0}, Hold: 40 * s, Unlock: "live"}}}},
					{Workers: [][]Op{{{Pause: 12 * s, Call: "lock", Names: []int{0}, Hold: s, Unlock: "live"}}}},
				},
				Faults: []Fault{{Kind: "lesser", At: 9900 * ms, Size: 400 * ms, Client: -1, Way: 1}},
			}
			if cluster {
				p.Faults[0].Server = homeOf(slotOf(lockKey("a")))
			}
			r := Run(t, p)
			if len(r.Violations) > 0 || r.Grants != 2 || !r.says("lost") {
				t.Errorf("%d grants, %v\n%s", r.Grants, r.Violations, r.Table(2))
			}
		})
	}
	if n := plansWith("lesser"); n < 10 || n > 60 {
		t.Errorf("%d of 1000 plans have a replica that has less", n)
	}
}
