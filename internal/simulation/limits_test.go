package simulation

import (
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// Plans have each of the limits, these are those of the client library's client, and who wants one connection more
// than there may be is told so.
func TestLimits(t *testing.T) {
	const s = time.Second
	found := make(map[string]bool)
	for seed := range uint64(1000) {
		p := NewPlan(seed, "")
		for i, c := range p.Clients {
			if c.Own == nil || c.Own.Limits == nil {
				continue
			}
			l := *c.Own.Limits
			found["active"] = found["active"] || l.Active > 0
			found["none for pipelines"] = found["none for pipelines"] || l.Bursts < 0
			found["one for pipelines"] = found["one for pipelines"] || l.Bursts > 0
			found["oldest"] = found["oldest"] || l.Oldest
			found["patience"] = found["patience"] || l.Patience > 0
			o := (&world{plan: p}).asMade(i, new(goredis.Options))
			if o.MaxActiveConns != l.Active || o.PipelinePoolSize != l.Bursts || o.PoolFIFO != l.Oldest || l.Patience > 0 && o.ReadTimeout != l.Patience {
				t.Errorf("seed %d, client %d: %+v makes %+v", seed, i, l, o)
			}
		}
	}
	for _, what := range []string{"active", "none for pipelines", "one for pipelines", "oldest", "patience"} {
		if !found[what] {
			t.Errorf("no plan has a limit: %s", what)
		}
	}
	pings := slices.Repeat([]Op{{Pause: 10 * time.Millisecond, Call: "ping", Names: []int{0}}}, 100)
	locks := slices.Repeat([]Op{{Pause: 20 * time.Millisecond, Call: "lock", Names: []int{0}, Unlock: "live"}}, 100)
	p := usesOf(Party{Own: &own{Retries: -1, Limits: &habits{Active: 1, Bursts: -1}}, Workers: [][]Op{pings, pings, pings, locks}})
	r := runUses(t, p)
	refused := slices.ContainsFunc(r.History, func(e Event) bool {
		return strings.HasPrefix(e.Text, "ping [a]:") && strings.Contains(e.Text, "pool exhausted")
	})
	if !refused || r.Grants != 100 {
		t.Errorf("with one connection for four: a ping was refused: %v; and %d leases\n%s", refused, r.Grants, r.Table(1))
	}
	p = usesOf(Party{Own: &own{Limits: &habits{Patience: 10 * s}}, Workers: [][]Op{{{Call: "ping", Names: []int{0}, Wait: 9 * s}, {Call: "lock", Names: []int{0}, Hold: 100 * time.Millisecond, Unlock: "live"}}}})
	p.Faults = []Fault{{Kind: "pause", At: time.Nanosecond, For: 7 * s, Client: -1}}
	runUses(t, p)
}

// Of one connection a try finds none that is free while a place in a queue is given back at that server, and the
// client library asks again later.
func TestOneConnection(t *testing.T) {
	const s = time.Second
	p := &Plan{
		Backend: "quorum", Servers: 3, Names: 3, TTL: 3 * s, Length: length, Latency: 100 * time.Microsecond, Spelled: []string{"a}b", "{", "}"},
		Clients: []Party{{
			Own: &own{Limits: &habits{Active: 1, Bursts: -1}}, Naming: Naming{Prefix: "é:", ByName: &byName{MaxHold: 6 * s}},
			Workers: [][]Op{{
				{Call: "lock", Names: []int{0}, MaxHold: 6 * s, Hold: 7 * s, Unlock: "live", Uses: Uses{ByName: true, Relock: "before"}},
				{Call: "rlock", Names: []int{2}, Unlock: "live"},
				{Call: "trymulti", Names: []int{0, 2}, MinHold: 2600 * time.Millisecond, Unlock: "live"},
				{Call: "lock", Names: []int{2}, Wait: 400 * time.Millisecond, Unlock: "live"},
				{Call: "tryrlock", Names: []int{0}, Unlock: "live"},
			}},
		}},
	}
	if r := Run(t, p); len(r.Violations) > 0 {
		t.Errorf("%v\n%s", r.Violations, r.Table(1))
	}
}
