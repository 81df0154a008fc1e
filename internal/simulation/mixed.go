package simulation

import (
	"math/rand/v2"
	"time"
)

// mixed has clients of a quorum differ in what they may: some do without a subscription, and each has its
// own idea of for how long the key of a free lock stays. Clients of a URL and those of a program are
// mixed anyway; see owns. In the nodes, their order, MaxTTL and Skew all clients of a quorum must agree.
func (g *generator) mixed() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 60))}
	p := g.plan
	if p.Backend != "quorum" {
		return
	}
	if g.often(25) {
		for i := range p.Clients {
			p.Clients[i].Poll = g.often(50)
		}
	}
	if g.often(25) {
		for i := range p.Clients {
			p.Clients[i].Keep = pick(g.draw, 0, time.Second, 5*time.Second, time.Minute)
		}
	}
}

// keepOf is for how long a client has the key of a free lock stay; 0: what is usual.
func (p *Plan) keepOf(client int) time.Duration {
	if keep := p.Clients[client].Keep; keep > 0 {
		return keep
	}
	return p.Keep
}
