package simulation

import "time"

// lastBusy notes until when a member of a quorum had, or had somebody wait for, what it has of
// a lock now. It is called before that changes.
func (r *register) lastBusy(s *server, l *lockLog) {
	if until, found := l.busyOn(s); found {
		l.busy[s.index] = later(l.busy[s.index], until)
	}
}

// busyOn is until when a server has or had somebody who holds a lock or waits for it, by what
// it was last seen to have.
func (l *lockLog) busyOn(s *server) (until time.Time, found bool) {
	t, now := l.last[s.index], time.Now()
	if len(t.queue) > 0 {
		return now, true
	}
	last := int64(0)
	if t.holder != "" {
		last = t.expiry
	}
	for _, e := range t.readers {
		last = max(last, e)
	}
	if until = s.at(last); until.After(now) {
		until = now
	}
	return until, last > 0
}

// busyOnQuorum reports whether any member has had somebody who held or wanted a lock since
// then: who is refused by one alone takes the lock to be held.
func (r *register) busyOnQuorum(name string, since time.Time) bool {
	l := r.lock(name)
	for _, s := range r.members() {
		r.lastBusy(s, l)
		if !l.busy[s.index].Before(since) {
			return true
		}
	}
	return false
}
