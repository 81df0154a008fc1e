package simulation

import (
	"math/rand/v2"
	"slices"
)

// even has a part of the quorums have one server more, four or six, of which a hold takes three or four:
// so as many may give trouble as without it. The servers that give any change their places.
func (g *generator) even() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 59))}
	p := g.plan
	opens := func(c Party) bool { return c.Opens != nil } // a URL has an odd number of servers
	if p.Backend != "quorum" || p.Need > 0 || !g.often(25) || slices.ContainsFunc(p.Clients, opens) {
		return
	}
	p.Servers++
	places := g.Perm(p.Servers)
	for i := range p.Faults {
		if f := &p.Faults[i]; f.Server != everywhere {
			f.Server = places[f.Server]
		}
	}
}
