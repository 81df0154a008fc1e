package simulation

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestGrows has masters come and go while a lock is held and waited for: no lease is lost, and those that have left
// are asked nothing that they decide.
func TestGrows(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	ops := slices.Repeat([]Op{{Pause: 100 * ms, Call: "lock", Names: []int{0}, Hold: s, Unlock: "live"}}, 40)
	shard := homeOf(slotOf(lockKey(nameOf(0))))
	grow := Fault{Kind: "grow", At: 5 * s, For: s, Client: -1, Server: shard}
	shrink := func(place, way int) Fault {
		return Fault{Kind: "shrink", At: 20 * s, For: s, Client: -1, Server: place, Way: way, Size: 5 * s}
	}
	for name, faults := range map[string][]Fault{
		"a master is added and its shard gets another one":    {grow, {Kind: "failover", At: 15 * s, Client: -1, Server: added}},
		"one that was added leaves, and says where slots are": {grow, shrink(added, 0)},
		"one that was added leaves, and knows nobody":         {grow, shrink(added, 1)},
		"one that was added leaves, and is gone":              {grow, shrink(added, 2)},
		"one from the beginning leaves":                       {shrink(shard, 0), {Kind: "failover", At: 30 * s, Client: -1, Server: (shard + 1) % shards}},
		"one from the beginning leaves, and knows nobody":     {shrink(shard, 1)},
		"one from the beginning leaves, and is gone":          {shrink(shard, 2)},
	} {
		t.Run(name, func(t *testing.T) {
			p := &Plan{
				Seed: 4, Backend: "redis", Servers: 1, Names: 1, TTL: 10 * s, Length: length, Latency: ms,
				Cluster: true, Replica: true, Lag: 10 * ms, Word: 50 * ms, Grows: true,
				Clients: []Party{{Workers: [][]Op{ops}}, {Workers: [][]Op{ops}}}, Faults: faults,
			}
			r := Run(t, p)
			says := func(text string) bool {
				return slices.ContainsFunc(r.History, func(e Event) bool { return strings.Contains(e.Text, text) })
			}
			left := slices.ContainsFunc(faults, func(f Fault) bool { return f.Kind == "shrink" })
			if len(r.Violations) > 0 || r.Grants < 10 || !says("slot 15495 is in shard") || left && !says("has left") || says("a over") {
				t.Errorf("%d grants, %v\n%s", r.Grants, r.Violations, r.Table(len(p.Clients)))
			}
		})
	}
}

// TestLeaseAtANodeThatLeft has a client do nothing but keep a lock, at a node that is taken out of the cluster and
// knows nobody any more before the next renewal: that finds out who has the lock.
func TestLeaseAtANodeThatLeft(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	shard := homeOf(slotOf(lockKey(nameOf(0))))
	p := &Plan{
		Backend: "redis", Servers: 1, Names: 1, TTL: 10 * s, Length: length, Latency: ms,
		Cluster: true, Replica: true, Lag: 10 * ms, Word: 50 * ms, Grows: true,
		Clients: []Party{{Workers: [][]Op{{{Call: "lock", Names: []int{0}, Hold: 45 * s, Unlock: "live"}}}}},
		Faults:  []Fault{{Kind: "shrink", At: 20500 * ms, For: 100 * ms, Size: 100 * ms, Client: -1, Server: shard, Way: 1}},
	}
	r := Run(t, p)
	ended := slices.ContainsFunc(r.History, func(e Event) bool { return strings.Contains(e.Text, "nodes of shard") })
	if len(r.Violations) > 0 || !ended {
		t.Errorf("%v\n%s", r.Violations, r.Table(1))
	}
}
