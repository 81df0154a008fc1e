package simulation

import (
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
