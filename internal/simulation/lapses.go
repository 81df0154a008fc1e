package simulation

import "math/rand/v2"

// A lock that is lost while its client has it is mostly found out by a renewal, or by the clock: an
// entry and a downgrade are rarely the first that the server is asked for since. Here the lock goes
// just before one of them, or beside it.

// lapses draws locks that get lost under their holder.
func (g *generator) lapses() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 50))}
	p := g.plan
	if p.Backend == "memory" || len(p.Faults) == 0 || !g.often(25) {
		return
	}
	most := 1 + g.IntN(6)
	if p.Backend == "quorum" { // its servers take no part for a while
		most = 1
	}
	for _, c := range p.Clients {
		for _, ops := range c.Workers {
			for i := range ops {
				if op := &ops[i]; most > 0 && g.often(10) && op.canLapse() {
					g.lapse(op)
					most--
				}
			}
		}
	}
}

// canLapse reports whether op has one lock that may be entered again, or downgraded, and no limit that
// all locks by name have.
func (op *Op) canLapse() bool {
	switch op.Call {
	case "lock", "trylock", "rlock", "tryrlock", "do":
		return !op.Forget && !op.ByName
	}
	return false
}

// lapse has the lock of op get lost, and something follow that finds out.
func (g *generator) lapse(op *Op) {
	op.Lapse = pick(g.draw, "flush", "flush", "break")
	op.Lag = g.within(0, 4*g.plan.Latency)
	op.MaxHold, op.Hold = 0, op.Hold+4*g.plan.Latency
	if g.often(50) {
		op.Downgrade = true
		return
	}
	op.Downgrade = false
	call := "lock"
	if op.Call == "rlock" || op.Call == "tryrlock" {
		call = "rlock"
	}
	again := Op{Call: call, Names: op.Names[:1], Wait: g.within(g.plan.TTL/2, g.plan.TTL), Hold: g.within(0, g.plan.TTL), Unlock: "live"}
	op.Inside = append([]Op{again}, op.Inside...)
	if g.often(30) { // it is open when the lock is lost, and another one asks, or its end does
		op.Inside[0].Lapse, op.Lapse = op.Lapse, ""
		op.Inside[0].Lag = op.Lag
		if g.often(50) {
			inner := again
			op.Inside[0].Inside = []Op{inner}
		}
	}
}

// lapses has the lock of op get lost, by a server that loses its data or by Break.
func (a *actor) lapses(op *Op) {
	switch op.Lapse {
	case "flush":
		for place, s := range a.w.masters() {
			if s == a.w.keeper(a.named(op)[0]) || a.w.plan.Backend == "quorum" {
				f := Fault{Kind: "flush", Client: -1, Server: place}
				a.w.reg.touch(f)
				outside(func() { a.w.happen(f) })
			}
		}
	case "break":
		a.ask(a.w.over, nil, &Op{Call: "break", Names: op.Names[:1]})
	default:
		return
	}
	_ = sleep(a.w.over, op.Lag)
}
