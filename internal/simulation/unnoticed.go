package simulation

import (
	"math/rand/v2"
	"time"
)

// Where much goes wrong, one fault mends what another has done: a connection that lets nothing through is
// broken a moment later, and who waits has long been told to ask again. So a part of the plans has one
// thing go wrong at a time, of which no connection tells, and nothing else for a minute or two, while
// clients wait for one lock now and then, each for some seconds.

// unnoticed are such faults.
var unnoticed = []string{"mute", "mute", "stall-subscription", "deaf", "half-dead", "flush-scripts"}

// unnoticing draws such plans.
func (g *generator) unnoticing() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 155))}
	p := g.plan
	if p.Backend != "redis" || len(p.Faults) == 0 || !g.often(6) {
		return
	}
	p.TTL = pick(g.draw, 10*time.Second, 30*time.Second) // who waits does not ask as a lease ends
	p.Length, p.Beat, p.Forgets, p.Rotates = 4*time.Minute, 0, 0, false
	kinds := unnoticed
	if p.Replica && g.often(50) {
		kinds = []string{"failover"}
	}
	p.Faults, p.Clients = nil, nil
	kind := pick(g.draw, kinds...)
	for range 2 + g.IntN(3) {
		p.Clients = append(p.Clients, g.visitor(g.within(0, 3*time.Second)))
	}
	p.Clients = append(p.Clients, g.visitor(g.within(8*time.Second, 20*time.Second)))
	place := 0
	if p.Cluster {
		place = g.IntN(p.shards())
	}
	for at := g.within(10*time.Second, 30*time.Second); at < p.Length; at += g.within(p.Length/6, p.Length/2) {
		// What is Way 2 to a failover leaves connections to what was the master.
		p.Faults = append(p.Faults, Fault{Kind: kind, At: at, For: g.lasting(), Client: g.IntN(len(p.Clients)), Server: place, Way: 2})
	}
}

// visitor is a client that comes for the first lock, each time after pauses of that length or so.
func (g *generator) visitor(pause time.Duration) Party {
	call := pick(g.draw, "lock", "lock", "rlock")
	return g.busyWith(func() Op {
		return Op{Pause: pause/2 + g.within(0, pause), Call: call, Names: []int{0}, Hold: g.within(0, 4*time.Second), Unlock: "live"}
	})
}
