package simulation

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// Plans have programs that greet servers, and greetings that fail and take long: clients wait for those, and go
// on when they are over.
func TestGreetings(t *testing.T) {
	const s = time.Second
	found := make(map[string]bool)
	for seed := range uint64(1000) {
		p := NewPlan(seed, "")
		for _, c := range p.Clients {
			if c.Own != nil && c.Own.Greeting != nil {
				found["greeting"] = true
				found["selects"] = found["selects"] || c.Own.Greeting.Selects
			}
		}
		for _, f := range p.Faults {
			if f.Kind == "greeting" {
				found[[]string{"fails", "slow", "both"}[f.Way]] = true
			}
		}
	}
	for _, what := range []string{"greeting", "selects", "fails", "slow", "both"} {
		if !found[what] {
			t.Errorf("no plan has %s", what)
		}
	}
	op := Op{Pause: s, Call: "lock", Names: []int{0}, Wait: s, Unlock: "live"}
	for _, backend := range []string{"redis", "quorum", "cluster"} {
		for way := range 3 {
			t.Run(backend, func(t *testing.T) {
				p := usesOf(Party{Own: &own{Greeting: &greeting{Selects: true}, Pool: &pool{Lifetime: s}}, Workers: [][]Op{slices.Repeat([]Op{op}, 10)}})
				p.Faults = []Fault{{Kind: "greeting", At: 3500 * time.Millisecond, For: 4 * s, Size: 150 * time.Millisecond, Way: way}}
				switch p.Backend = backend; backend {
				case "quorum":
					p.Servers = 3
				case "cluster":
					p.Backend, p.Cluster, p.Replica = "redis", true, true
				}
				r := runUses(t, p)
				failed, late := 0, false
				for _, e := range r.History {
					if e.Party == 0 && strings.Contains(e.Text, "unavailable") {
						failed++
					}
					late = late || e.At > 8*s && strings.HasPrefix(e.Text, "lock a: token")
				}
				if fails := way == 0 && backend != "quorum"; fails && failed == 0 || way == 1 && failed > 0 || !late {
					t.Errorf("way %d: %d calls have failed, and it has locked after: %v\n%s", way, failed, late, r.Table(1))
				}
			})
		}
	}
}
