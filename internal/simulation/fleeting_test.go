package simulation

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// Plans have clients for one call each, and these lock and leave nothing, also where connections end.
func TestFleeting(t *testing.T) {
	const ms = time.Millisecond
	found := make(map[string]bool)
	for seed := range uint64(1000) {
		for _, c := range NewPlan(seed, "").Clients {
			found[c.Fleeting] = true
		}
	}
	ops := slices.Repeat([]Op{{Pause: 20 * ms, Call: "lock", Names: []int{0}, Hold: 5 * ms, Unlock: "live"}}, 100)
	for _, how := range []string{"open", "own", "shared"} {
		if !found[how] {
			t.Errorf("no plan has a client for each call that is made by %s", how)
		}
		for _, backend := range []string{"redis", "quorum", "memory"} {
			if backend == "memory" && how == "open" {
				continue
			}
			t.Run(how+"/"+backend, func(t *testing.T) {
				p := usesOf(Party{Fleeting: how, Workers: [][]Op{ops}}, Party{Fleeting: how, Workers: [][]Op{ops}}, Party{Workers: [][]Op{ops}})
				if p.Backend = backend; backend == "quorum" {
					p.Servers = 3
				}
				if r := runUses(t, p); r.Coverage[fleetingClients] != 200 || r.Grants != 300 {
					t.Errorf("%d clients for one call, and %d leases", r.Coverage[fleetingClients], r.Grants)
				}
				if backend == "memory" {
					return
				}
				p.Faults = []Fault{{Kind: "reset", At: 500 * ms, Client: -1, Way: 2}, {Kind: "pause", At: time.Second, For: 500 * ms, Client: -1}}
				if r := runUses(t, p); r.Grants != 300 {
					t.Errorf("beside faults: %d leases", r.Grants)
				}
			})
		}
	}
}

// A client for one call leaves nothing at a member that is farther than the others: it is closed while that still
// answers, and what has come of it is given back on a new connection.
func TestFleetingFarAway(t *testing.T) {
	const ms = time.Millisecond
	for _, how := range []string{"open", "own", "shared"} {
		for _, servers := range []int{3, 4} {
			for _, call := range []string{"lock", "rlock"} {
				if how == "open" && servers%2 == 0 {
					continue
				}
				t.Run(fmt.Sprint(how, "/", servers, "/", call), func(t *testing.T) {
					ops := slices.Repeat([]Op{{Pause: 3 * time.Second, Call: call, Names: []int{0}, Unlock: "live"}}, 5)
					first := []Op{{Call: call, Names: []int{0}, Hold: time.Second, Unlock: "live"}} // then all members know the scripts
					p := usesOf(Party{Fleeting: how, Workers: [][]Op{ops}}, Party{Workers: [][]Op{first}})
					p.Backend, p.Servers, p.Latency, p.Far = "quorum", servers, 10*ms, 50*ms
					if servers%2 == 0 {
						p.Need = servers/2 + 1
					}
					runUses(t, p)
				})
			}
		}
	}
}
