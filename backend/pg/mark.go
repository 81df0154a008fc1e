package pg

import "time"

// A mark is what an attempt says of itself to other clients, by shared locks of a session
// that does not wait: a claim to the lock (claim.go), or that it has waited for long
// (wanted.go). It ends with that session, and is set again then.
type mark struct {
	set, drop op
	due       time.Time     // when it is to be set
	pause     time.Duration // until the next try, if that had no success
	session   *session      // that has it, nil if none has
	value     int64         // the server's answer: of a claim the ticket, which outlives its session
}

func (m *mark) isSet() bool { return m.session != nil && m.session.isAlive() }

// setMark sets m. If that fails, a goes on without.
func (a *attempt) setMark(m *mark) {
	a.dropMark(m)
	s, err := a.backend.useShared(a.ctx, a.lease)
	if err != nil {
		return
	}
	const tries = 5 // somebody may be looking for it just then
	for range tries {
		value, err := s.run(m.set, a.lock.key, a.precedence())
		if err != nil {
			break
		}
		if value != 0 {
			s.marks.Add(1)
			m.session, m.value = s, value
			return
		}
	}
	a.backend.stopUsing(s)
}

// dropMark takes m back, if it is set.
func (a *attempt) dropMark(m *mark) {
	s := m.session
	if s == nil {
		return
	}
	m.session = nil
	s.marks.Add(-1)
	_, _ = s.run(m.drop, a.lock.key, m.value) // fails only with the session
	a.backend.stopUsing(s)
}

// setDueMarks sets the marks for which it is time, and returns when it is time for the next
// one, zero if there is none.
func (a *attempt) setDueMarks() (next time.Time) {
	for _, m := range []*mark{&a.claim, &a.announcement} {
		if !m.isSet() && !time.Now().Before(m.due) {
			m.due = time.Now().Add(m.pause)
			a.setMark(m)
		}
		if !m.isSet() {
			next = earlier(next, m.due)
		}
	}
	return next
}

// withdraw takes back what a has said of itself, and leaves the queue.
func (a *attempt) withdraw() {
	a.dropMark(&a.claim)
	a.dropMark(&a.announcement)
	a.stopListening()
	a.leaveQueue()
}

// earlier returns the earlier of two times, of which zero is never.
func earlier(t, u time.Time) time.Time {
	if t.IsZero() || !u.IsZero() && u.Before(t) {
		return u
	}
	return t
}

// after is a channel that receives at t, and never if t is zero.
func after(t time.Time) <-chan time.Time {
	if t.IsZero() {
		return nil
	}
	return time.After(time.Until(t))
}
