package simulation

import (
	"math/rand/v2"
	"time"
)

// throngs has 20 to 60 clients more want one lock at once, again and again, in a small part of the plans. Each
// holds it for a moment, so that most wait in one queue.
func (g *generator) throngs() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 223))}
	p := g.plan
	if p.isLonger() || p.Fresh || p.TTL < time.Second || p.Length > 2*time.Minute || !g.often(2) {
		return
	}
	n := 20 + g.IntN(41)
	if p.Backend == "quorum" {
		n = 20 + g.IntN(11)
	}
	hold := pick(g.draw, 0, 10*time.Millisecond, 50*time.Millisecond)
	round := time.Duration(n) * (hold + 4*p.slowest()) // that all of them take, one after the other
	readers, tries := pick(g.draw, 0, 0, 30), pick(g.draw, 0, 0, 20)
	at := g.within(0, p.Length/4)
	for range n {
		var ops []Op
		for range 3 + g.IntN(4) {
			op := Op{Pause: g.within(0, round/2), Call: "lock", Names: []int{0}, Hold: g.within(0, hold), Unlock: "live"}
			if len(ops) == 0 {
				op.Pause += at
			}
			switch {
			case g.often(readers):
				op.Call = "rlock"
			case g.often(tries):
				op.Call = "trylock"
			}
			if g.often(20) {
				op.Wait, op.Cancel = g.within(0, 2*round), g.often(50)
			}
			ops = append(ops, op)
		}
		p.Clients = append(p.Clients, Party{Workers: [][]Op{ops}})
	}
}
