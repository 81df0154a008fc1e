package simulation

import (
	"maps"
	"math/rand/v2"
	"time"
)

// Of two replicas of a master the one takes over that has not acknowledged what was last written: dlock.replicas asks
// for one of them, and the other has answered. What it has is what the master had a while ago. The documentation
// promises that no two hold a lock as long as a replica that has acknowledged takes over, and no more than that.

func init() {
	maps.Copy(furtherKinds, map[string]touch{"lesser": {loses: true, fails: true, data: true, splits: true}})
	kinds["lesser"] = furtherKinds["lesser"]
	moving = append(moving, "lesser")
}

// lessers has such a replica take over in a part of the plans with replicas and faults, and mostly nothing else go
// wrong.
func (g *generator) lessers() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 246))}
	p := g.plan
	if !p.Replica || len(p.Faults) == 0 || !g.often(10) {
		return
	}
	if g.often(60) {
		p.Faults = nil
	}
	for range 1 + g.IntN(3) {
		f := Fault{Kind: "lesser", At: g.within(0, p.Length), Client: -1, Way: g.IntN(3)}
		if p.Cluster {
			f.Server = g.shard()
		}
		f.For, f.Size = g.within(0, time.Second), pick(g.draw, g.within(0, 100*time.Millisecond), g.within(0, p.TTL/2))
		p.Faults = append(p.Faults, f)
	}
}

// lesser has a replica take over that has what its master had some time ago.
func (w *world) lesser(f Fault) {
	s := w.master(f.Server)
	had := s.save()
	if sleep(w.over, f.Size) != nil || w.master(f.Server) != s {
		return
	}
	s.mu.Lock()
	r := s.replica
	s.mu.Unlock()
	if r == nil || r.isForgotten() {
		return
	}
	r.falls(had)
	if w.layout != nil {
		w.elect(f.Server, s, r, 0)
		return
	}
	w.promotion(s, f)
}

// falls has a replica have less than what it has heard, and hear nothing more.
func (s *server) falls(had *store) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.getsOlder(had)
	s.data.follows = true
	s.link.stream = nil
}
