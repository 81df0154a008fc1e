package simulation

import (
	"math/rand/v2"
	"time"
)

// bereft has members of a part of the quorums lose all that they had, again and again, while a client holds
// locks at no more of them than a hold takes: another client that reaches all would have a majority, if a
// member that has lost its data had a vote.
func (g *generator) bereft() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 120))}
	p := g.plan
	if !p.hasRedisMajority() || len(p.Durable) > 0 || len(p.Clients) < 2 || len(p.Faults) == 0 || !g.often(20) {
		return
	}
	p.Faults = nil
	g.bare()
	kind := pick(g.draw, "flush", "restart-empty")
	for i := range p.Faults {
		if f := &p.Faults[i]; f.Client < 0 {
			f.Kind, f.Size = kind, 0
		}
	}
}

// hasRedisMajority reports whether locks are held by a majority of several servers that are not in memory.
func (p *Plan) hasRedisMajority() bool { return p.Backend == "quorum" && !p.Shelves && p.Need == 0 }

// muted has one member of a part of the quorums be silent, again and again and for long, and has
// clients try to get one lock at the same moments: the votes of the others are often split.
func (g *generator) muted() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 121))}
	p := g.plan
	if !p.hasRedisMajority() || len(p.Clients) < 2 || len(p.Faults) == 0 || !g.often(15) {
		return
	}
	p.Faults, p.Beat = nil, pick(g.draw, 250*time.Millisecond, time.Second)
	place := g.IntN(p.Servers)
	for at := g.within(0, p.TTL); at < p.Length; {
		f := Fault{Kind: pick(g.draw, "hole", "pause"), At: at, For: g.within(longest/2, longest), Client: -1, Server: place, Way: 2}
		p.Faults = append(p.Faults, f)
		at += f.For + g.within(2*lingers, 4*lingers)
	}
	for _, c := range p.Clients {
		for _, ops := range c.Workers {
			g.tries(ops)
		}
	}
}

// tries has half of the calls of a goroutine that take one lock be tries at the first, that is held for a
// moment.
func (g *generator) tries(ops []Op) {
	for i := range ops {
		op := &ops[i]
		if (op.Call == "lock" || op.Call == "rlock" || op.Call == "trylock") && g.often(50) {
			op.Call, op.Names, op.Wait, op.Pause = "trylock", []int{0}, 0, g.within(0, time.Second)
			op.Hold = g.within(0, 100*time.Millisecond)
		}
	}
}
