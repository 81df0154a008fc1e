package simulation

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// A program closes its own client before that of the library. Close says that the lock may not be free,
// on one server, on Sentinels and on a cluster, and nothing is left of the client but what runs out.
func TestClosedFirst(t *testing.T) {
	for _, topology := range []string{"", "sentinels", "cluster", "quorum"} {
		p := &Plan{
			Backend: "redis", Servers: 1, Latency: time.Millisecond, Names: 1, TTL: 10 * time.Second, Length: length,
			Clients: []Party{{
				Own: &own{First: true, Pool: &pool{Lifetime: 2 * time.Second, Idle: time.Second, Least: 2, Wait: 200 * time.Millisecond}}, Close: 5 * time.Second,
				Workers: [][]Op{{{Pause: time.Second, Call: "lock", Names: []int{0}, Hold: length, Unlock: "live"}}},
			}},
			Sentinels: topology == "sentinels", Cluster: topology == "cluster", Replica: topology != "", Lag: time.Millisecond,
		}
		if topology == "quorum" {
			p.Backend, p.Servers, p.Replica = "quorum", 3, false
		}
		r, said := Run(t, p), false
		for _, e := range r.History {
			said = said || strings.Contains(e.Text, `close: dlock: close`) && strings.Contains(e.Text, `not confirmed to be free: "a"`)
		}
		if len(r.Violations) > 0 || !said {
			t.Errorf("%s: %v\n%s", topology, r.Violations, r.Table(1))
		}
	}
}

// Names of a cluster may make two connections to each node, and has the time for it where those are far.
func TestFarNames(t *testing.T) {
	far := &own{Protocol: 2, PoolSize: 1, Pool: &pool{Idle: time.Second, Wait: 200 * time.Millisecond}}
	p := &Plan{
		Backend: "redis", Servers: 1, Latency: 52 * time.Millisecond, Names: 1, TTL: 10 * time.Second, Length: length,
		Cluster: true, Replica: true, Lag: time.Millisecond, Word: time.Millisecond,
		Clients: []Party{
			{Own: far, Workers: [][]Op{{{Call: "lock", Names: []int{0}, Hold: 15 * time.Second, Unlock: "live"}}}},
			{Own: far, Workers: [][]Op{{{Pause: 10 * time.Second, Call: "names", Names: []int{0}, Wait: 2 * time.Second}}}},
		},
	}
	r := Run(t, p)
	late := slices.ContainsFunc(r.History, func(e Event) bool { return strings.Contains(e.Text, "names [a]: dlock: backend is unavailable") })
	if len(r.Violations) > 0 || !late {
		t.Errorf("%v\n%s", r.Violations, r.Table(2))
	}
}
