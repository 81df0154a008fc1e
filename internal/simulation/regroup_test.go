package simulation

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestRegroups has a cluster change while a lock is held and waited for, and somebody else use its keys.
func TestRegroups(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	ops := slices.Repeat([]Op{{Pause: 100 * ms, Call: "lock", Names: []int{0}, Hold: s, Unlock: "live"}}, 40)
	shard := homeOf(slotOf(lockKey(nameOf(0))))
	next := (shard + 1) % shards
	for name, faults := range map[string][]Fault{
		"a master comes back at another address":  {{Kind: "readdress", At: 5 * s, For: 500 * ms, Client: -1, Server: shard}},
		"a replica comes back at another address": {{Kind: "readdress", At: 5 * s, For: 500 * ms, Client: -1, Server: shard, Way: 2}},
		"a replica is forgotten, and one is added": {
			{Kind: "forget", At: 5 * s, For: 5 * s, Client: -1, Server: shard},
			{Kind: "failover", At: 15 * s, Client: -1, Server: shard},
		},
		"both shards get another master while the slot moves": {
			{Kind: "slot-move", At: 5 * s, For: 2 * s, Client: -1, Server: shard, Way: 2},
			{Kind: "failover", At: 5500 * ms, Client: -1, Server: shard},
			{Kind: "failover", At: 6 * s, Client: -1, Server: next},
		},
		"a key is somebody else's": {
			{Kind: "foreign", At: 5 * s, For: 3 * s, Client: -1, Server: shard},
			{Kind: "foreign", At: 30 * s, For: 3 * s, Client: -1, Server: shard, Way: 2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := &Plan{
				Seed: 4, Backend: "redis", Servers: 1, Names: 1, TTL: 10 * s, Length: length, Latency: ms,
				Cluster: true, Replica: true, Lag: 10 * ms, Word: 50 * ms,
				Clients: []Party{{Workers: [][]Op{ops}}, {Workers: [][]Op{ops}}}, Faults: faults,
			}
			if r := Run(t, p); len(r.Violations) > 0 || r.Grants < 10 {
				t.Errorf("%d grants, %v\n%s", r.Grants, r.Violations, r.Table(len(p.Clients)))
			}
		})
	}
}

// Clients that ask nothing while the nodes of a shard leave their addresses, at which nobody answers any more, may
// find the way later than within the time of a first answer.
func TestAddressesThatAreLeft(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	shard := homeOf(slotOf(lockKey(nameOf(0))))
	ops := []Op{{Call: "lock", Names: []int{0}, Unlock: "live"}, {Pause: 40 * s, Call: "lock", Names: []int{0}, Unlock: "live"}}
	p := &Plan{
		Seed: 5, Backend: "redis", Servers: 1, Names: 1, TTL: 10 * s, Length: length, Latency: ms,
		Cluster: true, Replica: true, Lag: 10 * ms, Word: 50 * ms,
		Clients: slices.Repeat([]Party{{Workers: [][]Op{ops}}}, 20),
		Faults: []Fault{
			{Kind: "readdress", At: 10 * s, For: 500 * ms, Client: -1, Server: shard, Way: 2},
			{Kind: "readdress", At: 20 * s, For: 500 * ms, Client: -1, Server: shard},
		},
	}
	r := Run(t, p)
	late := slices.ContainsFunc(r.History, func(e Event) bool { return strings.Contains(e.Text, "no answer within 3s") })
	if len(r.Violations) > 0 || !late {
		t.Errorf("%v\n%s", r.Violations, r.Table(len(p.Clients)))
	}
}
