package simulation

import (
	"math/rand/v2"
	"time"
)

// The wall clocks of clients differ from those of all servers, by up to most of a day: a machine whose clock
// was never set. Nothing follows from that but tokens that take a round trip more: a lease is counted by what
// has gone by.

// wallClocks draws by how much the clocks of all servers are ahead of those of the clients.
func (g *generator) wallClocks() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 137))}
	p := g.plan
	if p.Backend == "memory" || p.Shelves || !g.often(10) {
		return
	}
	most := pick(g.draw, time.Second, time.Minute, 20*time.Hour)
	p.Ahead = g.within(-most, most)
}

// isAhead has the clock of a server that begins be ahead of the world's.
func (s *server) isAhead(d time.Duration) {
	s.faults.skew, s.since = d, s.since.Add(d)
	s.data.values["dlock:boot"] = s.remembers()
}
