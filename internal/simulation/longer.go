package simulation

import (
	"math/rand/v2"
	"time"
)

// longer has a part of the plans last for a quarter of an hour to more than an hour, with as much
// to do as the others: who has a lock keeps it for minutes, waits as long, or does without it.
// Connections that nobody uses, subscriptions without a message, hundreds of renewals and what
// servers keep for a time show only then. What goes wrong lasts no longer than it does in others.
func (g *generator) longer() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 45))}
	p := g.plan
	if p.TTL < 10*time.Second || !g.often(40) { // each short lease is renewed several times a second
		return
	}
	by := pick(g.draw, 5, 10, 20)
	p.Length *= time.Duration(by)
	p.Drift /= float64(by) // clocks go no further apart
	for i := range p.Clients {
		c := &p.Clients[i]
		c.Close *= time.Duration(by)
		c.After *= time.Duration(by)
		for _, ops := range c.Workers {
			g.stretch(ops, by)
		}
	}
	for i := range p.Faults {
		p.Faults[i].At *= time.Duration(by)
	}
}

// isLonger reports whether a plan is one of those.
func (p *Plan) isLonger() bool { return p.Length > max(length, leases*p.TTL) }

// stretch has calls begin later, wait longer and hold longer.
func (g *generator) stretch(ops []Op, by int) {
	for i := range ops {
		op := &ops[i]
		op.Pause = op.Pause*time.Duration(by) + g.within(0, time.Duration(by)*time.Second)
		op.Hold *= time.Duration(by)
		if g.often(50) {
			op.Wait *= time.Duration(by)
		}
		if op.TTL > 0 {
			op.TTL = max(op.TTL, g.plan.TTL/2)
		}
		g.stretch(op.Inside, by)
	}
}
