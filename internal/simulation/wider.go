package simulation

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/quorum"
)

// wider gives a part of the plans what is far from what others have: holds that last for many
// leases or for less than a round trip, many clients, many goroutines, servers that are far away,
// and locks that nobody uses for many leases.
func (g *generator) wider() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 54))}
	if !g.often(20) {
		return
	}
	if g.often(40) {
		g.holdsWidely()
	}
	if g.often(30) {
		g.crowd()
	}
	if g.often(30) && g.plan.TTL >= 10*time.Second && g.plan.Backend != "memory" {
		g.distant()
	}
	if g.often(25) {
		g.idles()
	}
}

// holdsWidely has locks that are held, or kept, for several TTL, and that end by themselves after
// several or before an answer can have come. A quorum counts on no server for more than the greatest TTL.
func (g *generator) holdsWidely() {
	p := g.plan
	most := 3 * p.TTL
	if p.Backend == "quorum" {
		most = min(most, cmp.Or(p.MaxTTL, quorum.DefaultMaxTTL))
	}
	holds, keeps, limits, fleets := g.often(60), g.often(60), g.often(60), g.often(50)
	g.each(func(op *Op) {
		if op.asks() || op.ByName { // whose limits are those of all locks by name
			return
		}
		if holds && g.often(15) {
			op.Hold = g.within(p.TTL, 6*p.TTL)
		}
		if limits && g.often(15) {
			op.MaxHold = g.within(p.TTL, 6*p.TTL)
			op.Hold = min(cmp.Or(op.Hold, p.TTL)*4, g.within(0, 7*p.TTL))
		}
		if keeps && g.often(10) {
			op.MinHold = g.within(p.TTL/2, most)
		}
		if fleets && g.often(5) {
			op.MaxHold, op.MinHold = g.within(backend.MinTTL, max(2*p.Latency, backend.MinTTL)), 0
		}
		if op.MaxHold > 0 {
			op.MinHold = min(op.MinHold, op.MaxHold)
		}
	})
}

// crowd adds clients, up to eight of them, or has one have up to eight goroutines.
func (g *generator) crowd() {
	p := g.plan
	g.features() // of the others
	if g.often(60) {
		for len(p.Clients) < 8 && g.often(80) {
			g.party()
		}
	}
	if g.often(60) {
		c := &p.Clients[g.IntN(len(p.Clients))]
		own := slices.Clone(c.Workers)
		for len(own) < 8 && len(own) > 0 && g.often(85) {
			own = append(own, pick(g.draw, c.Workers...))
		}
		c.Workers = own
	}
}

// distant has servers be as far away as another continent: 50 to 150 ms there and back.
func (g *generator) distant() {
	p := g.plan
	p.Latency = g.within(25*time.Millisecond, 75*time.Millisecond)
	p.Jitter, p.Far = pick(g.draw, 0, p.Latency/20), 0
	g.each(func(op *Op) {
		if op.TTL > 0 {
			op.TTL = max(op.TTL, 2*trips*p.Latency, 8*p.slowest())
		}
	})
}

// idles has a goroutine do nothing for many leases now and then.
func (g *generator) idles() {
	p := g.plan
	for i := range p.Clients {
		for _, ops := range p.Clients[i].Workers {
			for j := range ops {
				if g.often(10) {
					ops[j].Pause += g.within(p.TTL, max(p.TTL, p.Length/3))
				}
			}
		}
	}
}

// longestHold is for how long a server may keep what nobody renews.
func (p *Plan) longestHold() time.Duration {
	longest := longestTTL(p.TTL)
	g := &generator{plan: p}
	g.each(func(op *Op) { longest = max(longest, op.MinHold) })
	return longest
}
