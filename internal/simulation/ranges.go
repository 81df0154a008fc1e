package simulation

import (
	"math/rand/v2"
	"time"
)

// Leases of hours, and clocks that are set by hours.

// ranges has a part of the plans have leases of hours.
func (g *generator) ranges() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 83))}
	p := g.plan
	if p.TTL >= 10*time.Second && p.Backend != "quorum" && !p.isLonger() && g.often(15) { // a quorum grants minutes
		g.hours()
	}
}

// hours has leases last for a time between ten minutes and three hours. All else takes as much longer,
// but for what goes wrong.
func (g *generator) hours() {
	p := g.plan
	by := pick(g.draw, 60, 120, 360)
	p.TTL *= time.Duration(by)
	p.Length *= time.Duration(by)
	p.Drift /= float64(by)
	for i := range p.Clients {
		c := &p.Clients[i]
		c.Close *= time.Duration(by)
		c.After *= time.Duration(by)
		c.Poll = false // it would ask twenty times a second, for hours
		for _, ops := range c.Workers {
			g.stretch(ops, by)
			leadsBriefly(ops)
		}
	}
	for i := range p.Faults {
		p.Faults[i].At *= time.Duration(by)
	}
}

// leadsBriefly has who leads in short terms do so for minutes: there is another term each half a second.
func leadsBriefly(ops []Op) {
	for i := range ops {
		op := &ops[i]
		if op.Call == "lead" && (op.Hold < time.Second || op.MaxHold > 0 && op.MaxHold < time.Second) {
			op.Wait = min(op.Wait, 10*time.Minute)
		}
		leadsBriefly(op.Inside)
	}
}

// sets has the clock of a server be set by hours in a part of the plans in which it is set at all.
func (g *generator) sets() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 84))}
	p := g.plan
	for i := range p.Faults {
		f := &p.Faults[i]
		if (f.Kind == "clock-on" || f.Kind == "clock-back") && p.Backend == "redis" && g.often(30) {
			f.Size = g.within(time.Hour, 30*time.Hour)
		}
	}
}
