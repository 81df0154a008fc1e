package simulation

import (
	"math/rand/v2"
	"time"
)

// multitudes has locks by the tens, of which many are taken at once, in a small part of the plans: what several
// clients take overlaps, and each says it in an order of its own.
func (g *generator) multitudes() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 224))}
	p := g.plan
	if p.isLonger() || len(p.Spelled) > 0 || p.TTL < time.Second || !g.often(3) {
		return
	}
	p.Names = 12 + g.IntN(29)
	for i := range p.Clients {
		c := &p.Clients[i]
		if g.predecessor(c) != nil { // it has the same calls
			continue
		}
		for _, ops := range c.Workers {
			for j := range ops {
				op := &ops[j]
				switch op.Call {
				case "lock", "trylock", "multi", "trymulti":
				default:
					continue
				}
				if op.ByName || op.Drops || op.Call != "multi" && op.Call != "trymulti" && len(op.AtOnce) > 0 || !g.often(25) {
					continue
				}
				if op.Call == "lock" || op.Call == "trylock" {
					op.Call = map[string]string{"lock": "multi", "trylock": "trymulti"}[op.Call]
				}
				op.Names = g.Perm(p.Names)[:p.Names/4+g.IntN(p.Names*3/4)]
			}
		}
	}
}
