package simulation

import (
	"cmp"
	"math/rand/v2"
)

// needs has a hold on a part of the quorums take all servers, or four of five.
func (g *generator) needs() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 48))}
	if p := g.plan; p.Backend == "quorum" && g.often(15) {
		p.Need = p.Servers
		if p.Servers == 5 && g.often(50) {
			p.Need = 4
		}
	}
}

// spare is how many servers of a quorum a hold can do without.
func (p *Plan) spare() int { return p.Servers - cmp.Or(p.Need, p.Servers/2+1) }

// needsAll reports whether a hold takes all servers of a quorum: one that has lost its data votes at
// once, and those that have not keep others out.
func (p *Plan) needsAll() bool { return p.Servers > 1 && p.spare() == 0 }
