package simulation

import (
	"slices"
	"testing"
	"time"
)

// Plans have tens of locks that are taken at once, and those who take them in different order end all the same.
func TestMultitudes(t *testing.T) {
	most := 0
	for seed := range uint64(1000) {
		g := &generator{plan: NewPlan(seed, "")}
		g.each(func(op *Op) { most = max(most, len(op.Names)) })
	}
	if most < 20 {
		t.Errorf("%d locks at once at most", most)
	}
	var all []int
	for i := range 30 {
		all = append(all, i)
	}
	back := slices.Clone(all)
	slices.Reverse(back)
	for _, backend := range []string{"redis", "quorum", "memory"} {
		t.Run(backend, func(t *testing.T) {
			op := func(names []int) []Op {
				return slices.Repeat([]Op{{Call: "multi", Names: names, Hold: time.Millisecond, Unlock: "live"}}, 5)
			}
			p := usesOf(
				Party{Workers: [][]Op{op(all), op(back)}}, Party{Workers: [][]Op{op(back), op(all[10:])}}, Party{Workers: [][]Op{op(all[:20])}},
			)
			if p.Backend, p.Names = backend, len(all); backend == "quorum" {
				p.Servers = 3
			}
			if r := runUses(t, p); r.Grants != 25 {
				t.Errorf("%d leases, want 25", r.Grants)
			}
		})
	}
}
