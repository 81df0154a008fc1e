package simulation

import (
	"math/rand/v2"
	"time"
)

// lookups has clients of a part of the plans with a replica learn one after the other that the
// address of the master stands for another server, as where a name is kept for a time.
func (g *generator) lookups() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 42))}
	p := g.plan
	if p.Backend != "redis" || !p.Replica || p.Sentinels || p.Cluster || g.often(50) {
		return
	}
	p.Kept, p.Word = true, pick(g.draw, 10*time.Millisecond, 500*time.Millisecond, 3*time.Second)
	if len(p.Faults) == 0 || g.often(30) {
		return
	}
	for range 1 + g.IntN(3) {
		f := Fault{Kind: pick(g.draw, "failover", "failover", "promotion"), At: g.within(0, p.Length), Client: -1, Way: g.IntN(3)}
		f.For = g.lasting()
		p.Faults = append(p.Faults, f)
	}
}

// named is the server that an address stands for, as far as a client knows.
func (w *world) named(client, place int) *server {
	if s, found := w.kept.Load(pair{client, place}); found {
		return s.(*server)
	}
	return w.master(place)
}

// keepNames has each client know for some time yet the server that an address has stood for.
func (w *world) keepNames(place int) {
	if !w.plan.Kept {
		return
	}
	for i := range w.plan.Clients {
		w.kept.Store(pair{i, place}, w.named(i, place))
	}
}

// looksUp has each client learn what an address stands for now, if there is no other word since.
func (w *world) looksUp(place int, r *server) {
	if !w.plan.Kept {
		return
	}
	for i := range w.plan.Clients {
		time.AfterFunc(w.hearsay(), func() {
			if w.master(place) == r {
				w.kept.Delete(pair{i, place})
				w.reg.tell(i, "looks up s%d", r.index)
			}
		})
	}
}
