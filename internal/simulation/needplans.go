package simulation

import "math/rand/v2"

// presses draws what shows where a hold takes more servers than a majority: questions about locks
// of which each server has its own token, and tries while one that is needed is silent.
func (g *generator) presses() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 62))}
	p := g.plan
	if p.Need == 0 {
		return
	}
	if g.often(50) {
		g.single(15, func(op *Op) { op.Call, op.Late = pick(g.draw, "inspect", "break"), g.often(50) })
	}
	if p.needsAll() && g.often(30) {
		g.silences()
	}
}

// silences has one server be silent for longer than a first answer is waited for, again and again, while
// nothing else goes wrong and calls that do not wait follow each other.
func (g *generator) silences() {
	p := g.plan
	p.Faults = nil
	server := g.IntN(p.Servers)
	for at := g.within(0, p.TTL); at < p.Length; {
		f := Fault{Kind: "pause", At: at, For: g.within(firstAnswer, 2*firstAnswer), Client: -1, Server: server}
		p.Faults = append(p.Faults, f)
		at += f.For + g.within(0, 2*lingers)
	}
	g.single(60, func(op *Op) { op.Call, op.Wait, op.Pause = "trylock", 0, g.within(0, firstAnswer) })
}

// single does so with that many percent of what is about one lock.
func (g *generator) single(percent int, do func(op *Op)) {
	g.each(func(op *Op) {
		if len(op.Names) == 1 && g.often(percent) {
			do(op)
		}
	})
}
