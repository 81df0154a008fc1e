package simulation

import (
	"math/rand/v2"
	"time"
)

// intervals has clients ask more or less often where no message tells them (dlock.poll). One that waits asks
// three times in a lease at least, and in a grant.
func (g *generator) intervals() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 200))}
	p := g.plan
	if p.Backend == "memory" || !g.often(30) {
		return
	}
	p.Interval = pick(g.draw, 5*time.Millisecond, 250*time.Millisecond, time.Second, 10*time.Second)
	if p.isLonger() && p.Interval < time.Second {
		p.Interval = 0 // for hours that is much to ask
	}
}
