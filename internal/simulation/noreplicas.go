package simulation

import "time"

// A master with min-replicas-to-write refuses writes as long as too few replicas follow it. It
// answers all that only reads, and who is subscribed stays so.
const errNoReplicas = replyError("NOREPLICAS Not enough good replicas to write.")

// unfollowed draws when masters have too few replicas.
func (g *generator) unfollowed() {
	g.adds(67, 15, func(f *Fault) { f.Kind, f.Client = "no-replicas", -1 })
}

// unfollow has a master have too few replicas until a time.
func (s *server) unfollow(end time.Time) {
	s.set(func() { s.faults.writes = refusal{string(errNoReplicas), end} })
}
