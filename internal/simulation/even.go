package simulation

import "math/rand/v2"

// even has a part of the quorums have one server more, four or six, of which a hold takes three or four:
// so as many may give trouble as without it. The servers that give any change their places.
func (g *generator) even() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 59))}
	p := g.plan
	if p.Backend != "quorum" || !g.often(25) {
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

// need is how many servers of a quorum a hold takes, as its options say it: a majority, which those
// decide by themselves where their number is odd.
func (p *Plan) need() int {
	if p.Servers%2 == 0 {
		return p.Servers/2 + 1
	}
	return 0
}

// without is how many servers a quorum can do without.
func (p *Plan) without() int { return (p.Servers - 1) / 2 }
