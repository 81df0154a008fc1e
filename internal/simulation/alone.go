package simulation

import (
	"math/rand/v2"
	"time"
)

// alone gives a part of the plans in which nothing goes wrong locks that one client alone asks for, or
// that are had for long while others try: there requests and round trips are counted.
func (g *generator) alone() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 87))}
	p := g.plan
	if len(p.Faults) > 0 || p.Backend == "memory" || !g.often(50) {
		return
	}
	if g.often(50) {
		p.Jitter = 0
	}
	first := p.Names
	p.Names += 2
	if g.often(50) {
		p.Clients = append(p.Clients, g.busyWith(func() Op { return g.soleOp(first) }))
		return
	}
	calls := pick(g.draw, []string{"lock"}, []string{"rlock"}, []string{"lock", "rlock"})
	p.Clients = append(p.Clients,
		g.busyWith(func() Op {
			return Op{Pause: g.within(0, time.Second), Call: pick(g.draw, calls...), Names: []int{first}, Hold: g.within(time.Second, 5*time.Second), Unlock: "live"}
		}),
		g.busyWith(func() Op {
			return Op{Pause: g.within(0, time.Second), Call: pick(g.draw, "trylock", "tryrlock", "tryrlock"), Names: []int{first}, Unlock: "live"}
		}))
	if g.often(60) {
		p.Clients = append(p.Clients, g.busyWith(func() Op {
			return Op{Pause: g.within(0, 4*time.Second), Call: "lock", Names: []int{first}, Wait: g.within(time.Second, 3*time.Second), Unlock: "live"}
		}))
	}
}

// busyWith is a client that does one thing after another.
func (g *generator) busyWith(op func() Op) Party {
	var ops []Op
	for used := time.Duration(0); used < g.plan.Length && len(ops) < 60; {
		next := op()
		ops = append(ops, next)
		used += next.Pause + next.Hold + 5*g.plan.Latency
	}
	return Party{Workers: [][]Op{ops}}
}

// soleOp is a use of the locks from first on.
func (g *generator) soleOp(first int) Op {
	op := Op{
		Pause: g.within(0, 3*time.Second), Call: pick(g.draw, "lock", "lock", "trylock", "rlock", "tryrlock", "multi", "trymulti", "do"),
		Names: []int{first + g.IntN(2)}, Hold: g.within(0, time.Second), Unlock: "live",
	}
	switch op.Call {
	case "multi", "trymulti":
		op.Names = []int{first, first + 1}
	case "lock", "trylock":
		op.Downgrade = g.often(20)
		if g.often(30) {
			op.Inside = []Op{{Call: pick(g.draw, "lock", "trylock", "rlock"), Names: op.Names, Hold: g.within(0, 100*time.Millisecond), Unlock: "live"}}
		}
	}
	return op
}
