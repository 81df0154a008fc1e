package simulation

import (
	"math/rand/v2"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// hurries has leases last for 40 to 90 ms in a part of the plans of one server that is near. What is done
// under them, and what goes wrong, is as much shorter.
func (g *generator) hurries() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 90))}
	p := g.plan
	if !p.mayHurry() || !g.often(60) {
		return
	}
	ttl := g.within(40*time.Millisecond, 90*time.Millisecond)
	shorter := func(all ...*time.Duration) {
		for _, d := range all {
			*d = time.Duration(float64(*d) * float64(ttl) / float64(p.TTL))
		}
	}
	for i := range p.Clients {
		c := &p.Clients[i]
		shorter(&c.Close, &c.After)
		for _, ops := range c.Workers {
			shorten(ops, shorter, ttl)
		}
		if c.ByName != nil {
			shorter(&c.ByName.MaxHold, &c.ByName.MinHold)
			c.ByName.MaxHold = aLimit(c.ByName.MaxHold)
		}
	}
	for i := range p.Faults {
		f := &p.Faults[i]
		shorter(&f.At, &f.For)
		if kinds[f.Kind].loses {
			shorter(&f.Size)
		}
	}
	shorter(&p.Beat, &p.Length)
	p.TTL = ttl
}

// mayHurry reports whether a lease of some hundredths of a second has the time of many round trips.
func (p *Plan) mayHurry() bool {
	return (p.Backend == "redis" || p.Backend == "memory") && p.TTL == time.Second && p.slowest() <= time.Millisecond && p.Latency < time.Millisecond &&
		!p.Replica && !p.Cluster && !p.Shelves && len(p.Skews) == 0 && !p.isLonger()
}

// shorten has calls begin sooner, wait and hold for a shorter time.
func shorten(ops []Op, shorter func(...*time.Duration), ttl time.Duration) {
	for i := range ops {
		op := &ops[i]
		shorter(&op.Pause, &op.Hold, &op.MaxHold, &op.MinHold, &op.Lag, &op.Wait, &op.TTL)
		op.MaxHold = aLimit(op.MaxHold)
		if op.TTL > 0 {
			op.TTL = max(op.TTL, ttl/2)
		}
		shorten(op.Inside, shorter, ttl)
	}
}

// aLimit is d, or the least limit that there may be, or none.
func aLimit(d time.Duration) time.Duration {
	if d == 0 {
		return 0
	}
	return max(d, backend.MinTTL)
}
