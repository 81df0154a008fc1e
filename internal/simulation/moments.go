package simulation

import (
	"math/rand/v2"
	"time"
)

// Faults at moments that the library has: the end of a lease and the renewal before it, the end of a
// grant, of the time for an answer, of a limit or of a minimum. A fault waits for a request, and then
// until so much time has gone by since that was sent, which is when a client's time begins, or since
// it was executed, which is when a server's does: to the microsecond, or a little before or after.

// moments draws such faults, and a second one at as special a distance from the first.
func (g *generator) moments() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 76))}
	p := g.plan
	if len(p.Faults) == 0 || p.Backend == "memory" || !g.often(20) {
		return
	}
	servers := p.Faults
	if g.often(60) {
		p.Faults = nil
	}
	for range 1 + g.IntN(6) {
		t := trigger{Nth: 1 + g.IntN(3), When: beforeAnswer, Next: g.often(20), Gently: g.often(50), Delay: g.moment(), Sent: g.often(50)}
		t.Script = pick(g.draw, "grants", "grants", "renew", "queues", "writes")
		first := Fault{At: g.within(0, p.Length), Client: -1, Server: g.place(servers), Trigger: &t}
		g.strikes(first)
		if g.often(50) {
			later := t
			later.Delay = pick(g.draw, t.Delay+g.moment(), g.moment())
			first.Trigger = &later
			g.strikes(first)
		}
	}
}

// strikes draws what happens at the moment of f.
func (g *generator) strikes(f Fault) {
	f.Kind, f.Way = g.sudden(), g.IntN(3)
	f.For = pick(g.draw, 0, g.within(0, 100*time.Millisecond), g.lasting(), min(g.moment(), longest))
	switch f.Kind {
	case "clock-on", "clock-back", "slot-move", "promotion":
		f.Size = g.within(0, min(g.plan.TTL, mostMoving))
	}
	if f.Kind == "slot-move" {
		f.For = min(f.For, mostMoving)
	}
	g.plan.Faults = append(g.plan.Faults, f)
}

// moment draws how long after a request something ends, or is to be done.
func (g *generator) moment() time.Duration {
	p := g.plan
	leases := []time.Duration{p.TTL}
	var limits []time.Duration
	g.each(func(op *Op) {
		if op.TTL > 0 {
			leases = append(leases, op.TTL)
		}
		for _, d := range []time.Duration{op.MinHold, op.MaxHold, op.MaxWait} {
			if d > 0 {
				limits = append(limits, d)
			}
		}
	})
	ttl := pick(g.draw, leases...)
	at := pick(g.draw, ttl, ttl, ttl, ttl/3, ttl/3, 2*ttl/3, ttl/6, grantTime, 2*time.Second, firstAnswer)
	if len(limits) > 0 && g.often(30) {
		at = pick(g.draw, limits...)
	}
	return max(at+g.beside(), time.Nanosecond)
}

// beside is how far from such a moment something happens.
func (g *generator) beside() time.Duration {
	const µs = time.Microsecond
	return pick(g.draw, 0, 0, -µs, µs, g.within(-20*µs, 20*µs), g.within(-time.Millisecond, time.Millisecond),
		g.within(-2*g.plan.slowest(), 2*g.plan.slowest()))
}

// delayed has a fault happen later, if it is to, and reports whether it is.
func (w *world) delayed(a *awaited, p *peer, d deed, before *store) bool {
	m := a.Trigger
	if m.Delay == 0 {
		return false
	}
	at := time.Now()
	if c, simulated := p.conn.(*conn); simulated && m.Sent {
		w.net.mu.Lock()
		at = c.link.written
		w.net.mu.Unlock()
	}
	rest := time.Until(at.Add(m.Delay))
	m.Delay = 0
	go func() {
		if sleep(w.over, rest) == nil {
			w.strike(a, p, d, before)
		}
	}()
	return true
}
