package pg

import (
	"context"
	"time"
)

// One goroutine at a time reads a connection. A caller who is alone does so
// itself until it has its answer, which spares two switches between goroutines
// for each exchange. The reader of the session does it for callers who come
// together, and for those who go on with something else; it also listens when
// nobody asks for anything, so that the end of the connection is known soon.

// shortNap is how long the reader leaves a connection to its callers after the
// last answer, and so how much later it may hear of its end. While callers come
// and go it looks up once a nap, for nothing.
const shortNap = 25 * time.Millisecond

// A reading says who reads a connection, and until when. The session's mutex guards
// all but rouse. It holds that
//
//   - one goroutine at a time reads: active is set from when it begins until nothing is
//     under way, and who finds it unset sets it before it reads;
//   - somebody reads while a call is under way;
//   - a caller reads only if nobody else does and the session is not reserved, and a
//     caller who stops before nothing is under way rouses the reader;
//   - the reader, once it is asleep, does not look up until it is roused;
//   - the connection ends a read at armed, which is no later than deadline.
type reading struct {
	active    bool          // somebody reads
	reserved  bool          // it is the reader alone who does
	asleep    bool          // only the reader changes that
	rouse     chan struct{} // receives when the reader is to read
	exchanges uint64        // that have ended
	deadline  time.Time     // until when to wait for the server
	armed     time.Time
}

// mayBegin makes the caller the one who reads, if that may be.
func (r *reading) mayBegin() bool {
	if r.active || r.reserved {
		return false
	}
	r.active = true
	return true
}

// drive queues c as start does, and reads until c is answered if nobody else
// reads. It gives up when ctx is done, and at a moment that may be zero. It reports
// whether c is answered; false says nothing.
func (s *session) drive(ctx context.Context, c *call, until time.Time) bool {
	if !s.submit(true, c) {
		return false
	}
	if !until.IsZero() {
		s.lookUpAt(until)
	}
	if ctx.Done() != nil {
		defer context.AfterFunc(ctx, s.interrupt)()
	}
	for !c.answered {
		if ctx.Err() != nil || s.backend.ctx.Err() != nil || !until.IsZero() && time.Now().After(until) {
			s.handOver()
			return false
		}
		idle, err := s.step()
		if err != nil {
			s.kill(err)
			s.handOver()
			return false
		}
		if idle {
			return true
		}
	}
	s.handOver()
	return true
}

// interrupt has whoever reads look up.
func (s *session) interrupt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.arm(time.Unix(1, 0))
}

// lookUpAt has whoever reads look up at t, if there is nothing to read until then.
func (s *session) lookUpAt(t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.armed.After(t) {
		s.arm(t)
	}
}

// handOver makes the reader read in the place of the caller who does.
func (s *session) handOver() { s.rouse <- struct{}{} }

// alert makes the reader read if nobody does. It is called with s.mu held.
func (s *session) alert() {
	if !s.active {
		s.active = true
		s.handOver()
	}
}

// reserve leaves all reading to the reader from now on.
func (s *session) reserve() {
	s.mu.Lock()
	s.reserved = true
	s.alert()
	s.mu.Unlock()
	s.interrupt()
}

// rest returns when the reader has to read: somebody wants it to, or nobody has
// used the connection for a while. A caller who reads for long wakes the reader
// when it has its answer, so that the reader need not look again and again.
func (s *session) rest(timer *time.Timer) {
	defer timer.Stop()
	for seen := uint64(0); ; {
		timer.Reset(time.Duration(s.backend.nap.Load()))
		select {
		case <-s.rouse:
			return
		case <-timer.C:
		}
		switch n := s.look(seen); {
		case n != seen:
			seen = n
		case s.asleep:
			<-s.rouse
			s.wakeUp()
			return
		default:
			return
		}
	}
}

// look returns the number of exchanges so far. If it is still seen, the reader
// reads from now on, or falls asleep while a caller does.
func (s *session) look(seen uint64) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.exchanges != seen:
	case s.active:
		s.asleep = true
	default:
		s.active = true
		s.setDeadline(time.Now().Add(s.ttl / 2))
	}
	return s.exchanges
}

func (s *session) wakeUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asleep = false
}

// hush reports whether nobody has to read now that nothing is under way. It is
// called with s.mu held.
func (s *session) hush() bool {
	if s.reserved || s.asleep || s.dead != nil {
		s.setDeadline(time.Now().Add(s.ttl / 2))
		return false
	}
	s.active = false
	return true
}

// setDeadline says until when to wait for the server. The connection is told
// of a later one only when the one that it knows has passed.
func (s *session) setDeadline(t time.Time) {
	s.deadline = t
	if s.armed.IsZero() || s.armed.After(t) {
		s.arm(t)
	}
}

func (s *session) arm(t time.Time) {
	s.armed = t
	_ = s.conn.SetReadDeadline(t) // fails only on a closed connection
}
