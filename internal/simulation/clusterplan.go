package simulation

import (
	"math/rand/v2"
	"time"
)

// clusterKinds are the faults of a cluster alone.
var clusterKinds = []string{"takeover", "slot-move", "cluster-down"}

// cluster has the server of a part of the plans be a cluster.
func (g *generator) cluster(backend string) {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 4))} // whoever has none draws as before
	p := g.plan
	if backend != "cluster" && (backend != "" || p.Sentinels || !g.often(30)) {
		return
	}
	p.Cluster, p.Replica = true, true
	p.Word = pick(g.draw, 0, time.Millisecond, 50*time.Millisecond, time.Second)
	for i := range p.Faults {
		p.Faults[i].Server = g.shard()
		g.shorten(&p.Faults[i])
	}
	if len(p.Faults) == 0 || g.often(30) {
		return
	}
	for range 1 + g.IntN(5) {
		f := Fault{
			Kind: pick(g.draw, "failover", "promotion", "takeover", "slot-move", "slot-move", "cluster-down"),
			At:   g.within(0, p.Length), Client: -1, Server: g.shard(), Way: g.IntN(3),
		}
		f.For = g.lasting()
		f.Size = pick(g.draw, g.within(0, 100*time.Millisecond), g.within(0, 2*p.TTL))
		g.shorten(&f)
		p.Faults = append(p.Faults, f)
	}
}

// mostMoving bounds how long a slot moves, and stays before it moves back.
const mostMoving = 10 * time.Second

func (g *generator) shorten(f *Fault) {
	if f.Kind == "slot-move" {
		f.For, f.Size = min(f.For, mostMoving), min(f.Size, mostMoving)
	}
}

// shard draws one in which there is a lock.
func (g *generator) shard() int { return homeOf(slotOf(lockKey(nameOf(g.IntN(g.plan.Names))))) }
