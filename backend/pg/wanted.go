package pg

import "time"

// Nobody tells the holder of an advisory lock that somebody waits, and to read pg_locks for
// that would stop everybody who takes a lock. So a request that has waited for a third of
// its TTL says so by two more shared locks: one on a key made of the lock's, one on a key
// that all locks have in common. Whoever holds exclusively tries the common key with each
// renewal, in one statement for all its locks, and looks for the keys of its own locks only
// if that is taken. Readers are not told. The common key is first taken for the transaction
// alone, for the same reason as the ticket of a claim.

// announceAt is when a is to say that it waits, zero if it has done so: after a third of
// its TTL, and again as long after a try that had no success.
func (a *attempt) announceAt() time.Time {
	if s := a.wantSession; s != nil && s.isAlive() {
		return time.Time{}
	}
	since := a.since
	if a.announced.After(since) {
		since = a.announced
	}
	return since.Add(a.ttl / 3)
}

// makeAnnouncement says on the server that a waits, if it is time to. If that fails, a
// tries again later.
func (a *attempt) makeAnnouncement() {
	if at := a.announceAt(); at.IsZero() || time.Now().Before(at) {
		return
	}
	a.withdrawAnnouncement()
	a.announced = time.Now()
	s, err := a.backend.useShared(a.ctx, sharedKey{a.lease, forHolding})
	if err != nil {
		return
	}
	const tries = 5 // a holder may be looking just then
	for range tries {
		if done, err := s.run(want, a.lock.key, 0); err != nil {
			break
		} else if done == 1 {
			s.claims.Add(1)
			a.wantSession = s
			return
		}
	}
	a.backend.stopUsing(s)
}

// withdrawAnnouncement takes that back.
func (a *attempt) withdrawAnnouncement() {
	s := a.wantSession
	if s == nil {
		return
	}
	a.wantSession = nil
	s.claims.Add(-1)
	s.start(&call{op: dropWant, arg: a.lock.key, onAnswer: func(*call) { a.backend.stopUsing(s) }})
}

// look returns the call that finds out whether somebody waits for a lock that is held
// exclusively on s, and has the holder told. There is none if nobody is to be told.
func (s *session) look() []*call {
	s.mu.Lock()
	s.looked = time.Now()
	s.mu.Unlock()
	if len(s.untold(1)) == 0 {
		return nil
	}
	return []*call{{op: anyWanted, onAnswer: func(c *call) {
		if c.err == nil && c.value == someoneWaits {
			s.lookForSome(make(map[*grant]bool))
		}
	}}}
}

// lookIfOverdue looks on a session that is too busy to be renewed.
func (s *session) lookIfOverdue(pause time.Duration) {
	s.mu.Lock()
	overdue := time.Since(s.looked) > pause
	s.mu.Unlock()
	if !overdue {
		return
	}
	if calls := s.look(); len(calls) > 0 {
		s.start(calls...)
	}
}

// mostLooks is how many locks one exchange looks at: each takes a place in the server's
// lock table for a moment.
const mostLooks = 64

// lookForSome looks at grants that are not among seen, and goes on with others when the
// server has answered.
func (s *session) lookForSome(seen map[*grant]bool) {
	var next []*grant
	for _, g := range s.untold(mostLooks + len(seen)) {
		if !seen[g] && len(next) < mostLooks {
			seen[g] = true
			next = append(next, g)
		}
	}
	calls := make([]*call, len(next))
	for i, g := range next {
		last := i == len(next)-1
		calls[i] = &call{op: wanted, arg: g.lock.key, onAnswer: func(c *call) {
			if c.err == nil && c.value == someoneWaits {
				g.tellWanted()
			}
			if last && c.err == nil {
				s.lookForSome(seen)
			}
		}}
	}
	if len(calls) > 0 {
		s.start(calls...)
	}
}

// untold returns up to n exclusive grants of s whose holders have not been told that
// somebody waits.
func (s *session) untold(n int) (all []*grant) {
	b := s.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	for g := range s.grants {
		if len(all) == n {
			break
		}
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
		if h.observer != nil {
			h.observer.Wanted()
		}
	}
}
