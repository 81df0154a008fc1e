package simulation

import (
	"math/rand/v2"
	"time"
)

// losses draws connections that break just when a server has executed what a client asked.
func (g *generator) losses() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 44))}
	p := g.plan
	if len(p.Faults) == 0 || !g.often(20) {
		return
	}
	servers := p.Faults
	for range 1 + g.IntN(4) {
		p.Faults = append(p.Faults, Fault{
			Kind: "unanswered", At: g.within(0, p.Length), Client: g.IntN(len(p.Clients)), Server: pick(g.draw, servers...).Server,
			For: g.within(0, min(p.TTL, longest)), Size: time.Duration(1 + g.IntN(2)),
		})
	}
}

// unanswer has the next n scripts of a client be executed, and their connections break.
func (w *way) unanswer(n int) {
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	w.unanswered = n
}

// breaks has the connection of p break, if the answer to what was just executed is to be lost.
func (p *peer) breaks() {
	c, simulated := p.conn.(*conn)
	if !simulated {
		return
	}
	w := c.link.way
	w.net.mu.Lock()
	lost := w.unanswered > 0
	if lost {
		w.unanswered--
	}
	w.net.mu.Unlock()
	if lost {
		c.in.fail(errReset)
		c.out.fail(errReset)
	}
}
