package pg

import "time"

// Nobody tells the holder of an advisory lock that somebody waits, and to read pg_locks for
// that would stop everybody who takes a lock. So a request that has waited for a third of
// its TTL says so by two more shared locks: one on a key made of the lock's, one on a key
// that all locks have in common. Whoever holds exclusively tries the common key with each
// renewal, in one statement for all its locks. Only if that is taken it looks for the keys of
// its own locks, with one statement for hundreds: the wait of somebody else is to cost it
// little. Each key is taken for the moment of that look alone, and needs one place in the
// server's lock table. Readers are not told. The common key is first taken for the transaction
// alone, for the same reason as the ticket of a claim.

// look returns the call that finds out whether somebody waits for a lock that is held
// exclusively on s, and has the holder told. There is none if nobody is to be told, or
// s has looked within pause.
func (s *session) look(pause time.Duration) []*call {
	s.mu.Lock()
	overdue := time.Since(s.looked) >= pause
	if overdue {
		s.looked = time.Now()
	}
	s.mu.Unlock()
	if !overdue || len(s.untold()) == 0 {
		return nil
	}
	return []*call{{op: anyWanted, onAnswer: func(c *call) {
		if c.err == nil && c.value == someoneWaits {
			s.lookFor(s.untold())
		}
	}}}
}

// lookFor looks at grants, as many at once as one statement takes, and goes on with the
// others when the server has answered.
func (s *session) lookFor(grants []*grant) {
	n := min(len(grants), maxGroup)
	if n == 0 {
		return
	}
	calls := make([]*call, n)
	for i, g := range grants[:n] {
		calls[i] = &call{op: wanted, arg: g.lock.key, onAnswer: func(c *call) {
			if c.err == nil && c.value == someoneWaits {
				g.tellWanted()
			}
			if i == n-1 && c.err == nil {
				s.lookFor(grants[n:])
			}
		}}
	}
	s.start(calls...)
}

// untold returns the exclusive grants of s whose holders have not been told that somebody
// waits.
func (s *session) untold() (all []*grant) {
	b := s.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	for g := range s.grants {
		if !g.shared && !g.over && !g.wanted {
			all = append(all, g)
		}
	}
	return all
}

// tellWanted tells the holder of g once that somebody waits.
func (g *grant) tellWanted() {
	b := g.session.backend
	b.mu.Lock()
	var holds []*hold
	if !g.wanted && !g.over {
		g.wanted = true
		holds = append(holds, g.holds...)
	}
	b.mu.Unlock()
	for _, h := range holds {
		h.request.Wanted()
	}
}
