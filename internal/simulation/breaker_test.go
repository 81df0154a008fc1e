package simulation

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// Plans have breakers of both sorts, and some that something else opens. Those who ask one are refused at once while
// it is open, by what has failed or by that, and lock again after it.
func TestBreakers(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	found := make(map[string]bool)
	for seed := range uint64(1000) {
		p := NewPlan(seed, "")
		for _, c := range p.Clients {
			if c.Own != nil && c.Own.Breaker != nil {
				found["limiter"] = found["limiter"] || !c.Own.Breaker.Hooks
				found["hook"] = found["hook"] || c.Own.Breaker.Hooks
			}
		}
		found["opened"] = found["opened"] || slices.ContainsFunc(p.Faults, func(f Fault) bool { return f.Kind == "breaker" })
	}
	for _, what := range []string{"limiter", "hook", "opened"} {
		if !found[what] {
			t.Errorf("no plan has a breaker: %s", what)
		}
	}
	tries := slices.Repeat([]Op{{Pause: 100 * ms, Call: "trylock", Names: []int{0}, Wait: 300 * ms, Unlock: "short", Limit: 200 * ms}}, 60)
	for name, fault := range map[string]Fault{
		"something else opens it": {Kind: "breaker", At: 2 * s, For: 2 * s},
		"failures open it":        {Kind: "cut", At: 2 * s, For: s, Client: -1, Way: 2},
	} {
		for _, hooks := range []bool{false, true} {
			for _, topology := range []string{"", "sentinels", "cluster"} {
				if topology != "" && !hooks {
					continue
				}
				t.Run(name, func(t *testing.T) {
					p := usesOf(Party{Own: &own{Retries: -1, Breaker: &circuitSettings{Fails: 1, Rest: 2 * s, Hooks: hooks}}, Workers: [][]Op{tries}})
					p.Sentinels, p.Cluster, p.Replica = topology == "sentinels", topology == "cluster", topology != ""
					if p.Faults = []Fault{fault}; topology == "cluster" {
						p.Faults[0].Server = homeOf(slotOf(lockKey(nameOf(0))))
					}
					r := runUses(t, p)
					refused, late := 0, false
					for _, e := range r.History {
						if strings.HasPrefix(e.Text, "trylock [a]:") && e.At > 2*s && e.At < 4*s {
							refused++
						}
						late = late || e.At > 4500*ms && strings.HasPrefix(e.Text, "trylock a: token")
					}
					if refused < 3 || !late {
						t.Errorf("hooks %v, %s: %d calls were refused, and it has locked after: %v\n%s", hooks, topology, refused, late, r.Table(1))
					}
				})
			}
		}
	}
}
