package simulation

import (
	"math/rand/v2"
	"time"
)

// A distance says by how much servers are nearer to clients than the plan says, which is the most. Clients
// are in different places, a master and its replica, or the shards of a cluster, too; and a way is another
// for good as a server, or the one that it is reached through, moves.
type distance struct {
	Client, Server int           // -1: all
	By             int           // by which the plan's is divided
	At             time.Duration `json:",omitempty"` // when it changes; 0: never
	To             int           `json:",omitempty"` // likewise, from then on
}

// distances draws them for a part of the plans.
func (g *generator) distances() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 176))}
	p := g.plan
	if p.Backend == "memory" || p.Shelves || !g.often(25) {
		return
	}
	servers := max(p.Servers, p.shards())
	if p.Replica {
		servers *= 2
	}
	all := []int{-1}
	clients, places := pick(g.draw, all, below(len(p.Clients))), pick(g.draw, all, below(servers), below(servers))
	moves := g.often(50)
	for _, c := range clients {
		for _, s := range places {
			d := distance{Client: c, Server: s, By: pick(g.draw, 1, 5, 50)}
			if moves {
				d.At, d.To = g.within(p.Length/4, 3*p.Length/4), pick(g.draw, 1, 5, 50)
			}
			p.Distances = append(p.Distances, d)
		}
	}
}

// shortest is what a message takes at least, also on one machine.
const shortest = 50 * time.Microsecond

// shorter is a way divided by some number.
func shorter(base time.Duration, by int) time.Duration {
	return min(base, max(base/time.Duration(by), shortest))
}

// nearest is how long the shortest way takes at least.
func (p *Plan) nearest() time.Duration {
	by := 1
	for _, d := range p.Distances {
		by = max(by, d.By, d.To)
	}
	return shorter(p.Latency, by)
}

// below is the numbers below n.
func below(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

// places has a way be as long as the plan says.
func (w *world) places(way *way) {
	base, jitter := way.base, way.jitter
	for _, d := range w.plan.Distances {
		if d.Client >= 0 && d.Client != way.pair.client || d.Server >= 0 && d.Server != way.pair.server {
			continue
		}
		way.base, way.jitter = shorter(base, d.By), jitter/time.Duration(d.By)
		if d.At > 0 {
			go w.moves(way, d, shorter(base, d.To), jitter/time.Duration(d.To))
		}
	}
}

// moves has a way be another from its time on.
func (w *world) moves(way *way, d distance, base, jitter time.Duration) {
	if sleep(w.over, d.At-time.Since(w.reg.began)) != nil {
		return
	}
	way.change(func() { way.base, way.jitter = base, jitter })
	w.reg.tell(-2, "c%d is %v from s%d", way.pair.client, base, way.pair.server)
}
