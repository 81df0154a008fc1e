package simulation

import "time"

// lag draws a replica that falls behind, or is away for a time. Of three one takes over
// meanwhile.
func (g *generator) lag(f *Fault) {
	f.Kind, f.Client = pick(g.draw, "lag", "lag", "replica-gone"), -1
	f.Size = min(pick(g.draw, g.within(0, g.plan.TTL/6), g.within(0, 2*g.plan.TTL)), longest)
	if f.Kind == "replica-gone" {
		f.Size = 0
	}
	if !g.often(33) {
		return
	}
	p := Fault{Kind: "promotion", At: f.At + g.within(0, f.For), Client: -1, Server: f.Server, Way: g.IntN(3)}
	p.For = pick(g.draw, g.within(0, 100*time.Millisecond), g.within(0, g.plan.TTL))
	p.Size = pick(g.draw, g.within(0, 100*time.Millisecond), g.within(0, 2*g.plan.TTL))
	g.plan.Faults = append(g.plan.Faults, p)
}

// due is when the replica has what its master sends now.
func (l *replication) due() time.Time {
	due := later(time.Now().Add(l.lag+l.extra), l.held)
	if n := len(l.stream); n > 0 {
		due = later(due, l.stream[n-1].due)
	}
	return due
}

// trail has the replica of a master fall behind for a time. One that was away gets what it
// has missed, or a copy of all.
func (w *world) trail(s *server, f Fault) {
	s.mu.Lock()
	r := s.replica
	s.mu.Unlock()
	if r == nil {
		return
	}
	change := func(f func(l *replication)) {
		r.mu.Lock()
		defer r.mu.Unlock()
		f(&r.link)
	}
	if f.Kind == "lag" {
		change(func(l *replication) { l.extra += f.Size })
		time.AfterFunc(f.For, func() { change(func(l *replication) { l.extra -= f.Size }) })
		return
	}
	change(func(l *replication) { l.held = later(l.held, time.Now().Add(f.For)) })
	time.AfterFunc(f.For, func() {
		if f.Way != 0 && s.leads(r) {
			s.followedBy(r, w.plan.Lag)
		}
	})
}

// leads reports whether r follows s.
func (s *server) leads(r *server) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.replica == r
}

// isBehind reports whether a replica is too far behind for a master to wait for it, as
// FAILOVER TIMEOUT and CLUSTER FAILOVER do for a time.
func (s *server) isBehind() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.link.extra > 0 || time.Now().Before(s.link.held)
}
