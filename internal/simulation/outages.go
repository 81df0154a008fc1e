package simulation

import (
	"math/rand/v2"
	"time"
)

// outages has faults of a part of the longer plans last for half a minute to ten: longer than any lease that
// nobody renews, than an answer is waited for, and now and then than keys of free locks and a member's memory of
// what it has granted. In half of those on several servers one of them is away for most of the plan, or all
// are for a time.
func (g *generator) outages() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 166))}
	p := g.plan
	if !p.isLonger() || p.Shelves || len(p.Faults) == 0 || !g.often(50) {
		return
	}
	if p.Servers > 1 && g.often(50) {
		g.absences()
		return
	}
	for i := range p.Faults {
		if f := &p.Faults[i]; f.Trigger == nil && f.Kind != "kill-client" && f.For >= time.Second {
			f.For = g.outage(f.At, f.For)
		}
	}
}

// outage is for how long a fault lasts that would last for d: it is over before the plan is.
func (g *generator) outage(at, d time.Duration) time.Duration {
	most := g.plan.Length - at - lingers
	return max(d, min(g.within(longest, 20*longest), most))
}

// absences has a member of a quorum be away from some time on for nearly as long as the plan lasts, or all
// members at once, once, and nothing else go wrong.
func (g *generator) absences() {
	p := g.plan
	kind, at := pick(g.draw, "hole", "pause", "cut", "half-open"), g.within(0, p.Length/2)
	gone := Fault{Kind: kind, At: at, For: p.Length - at - g.within(lingers, p.Length/4), Client: -1, Server: g.IntN(p.Servers), Way: 2}
	p.Faults = []Fault{gone}
	if g.often(50) {
		p.Faults = nil
		gone.For = g.outage(at, longest)
		for gone.Server = range p.Servers {
			p.Faults = append(p.Faults, gone)
		}
	}
}

// gathers is how many times as much may gather while a server is silent as in a plan without outages.
func (p *Plan) gathers() float64 {
	silent := longest
	for _, f := range p.Faults {
		silent = max(silent, f.For)
	}
	return silent.Seconds() / longest.Seconds()
}
