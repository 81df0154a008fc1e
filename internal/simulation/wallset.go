package simulation

import (
	"maps"
	"math/rand/v2"
)

// The wall clock of the machine on which all clients of a plan run is set, while servers' clocks and the monotonic one go
// on as they did. A lease of which less is left than the clock is set forward by has ended, and no other; one that is set
// back ends none and makes none longer.

const (
	wallOn   = "wall-on"
	wallBack = "wall-back"
)

func init() {
	maps.Copy(furtherKinds, map[string]touch{wallOn: {loses: true, fails: true}, wallBack: {}})
	maps.Copy(kinds, map[string]touch{wallOn: furtherKinds[wallOn], wallBack: furtherKinds[wallBack]})
	answering = append(answering, wallOn, wallBack)
}

// setsWall has the wall clock of a part of the plans be set some times.
func (g *generator) setsWall() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 270))}
	p := g.plan
	if p.Backend == "memory" || p.Shelves || len(p.Faults) == 0 || p.isLonger() || p.isSuspended() || !g.often(4) {
		return
	}
	if g.often(60) {
		p.Faults = nil
	}
	for range 1 + g.IntN(4) {
		f := Fault{Kind: pick(g.draw, wallOn, wallBack), At: g.within(0, p.Length), Client: -1}
		f.For = pick(g.draw, g.within(0, p.TTL/3), g.within(0, p.TTL), g.within(p.TTL, 4*p.TTL))
		p.Faults = append(p.Faults, f)
	}
}

// setWall sets the wall clock of the machine of all clients.
func (w *world) setWall(f Fault) {
	by := f.For
	if f.Kind == wallBack {
		by = -by
	}
	w.wall.goesOn(by)
}
