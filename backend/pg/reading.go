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

// defaultReaderDelay is how long the reader leaves a connection to its callers after
// the last answer. So much later it may hear of the end of the connection.
const defaultReaderDelay = 25 * time.Millisecond

// A reading says who reads a connection, and until when. The session's mutex guards
// all but wake. It holds that
//
//   - one goroutine at a time reads: active is set from when it begins until nothing is
//     under way, and who finds it unset sets it before it reads;
//   - somebody reads while a call is under way;
//   - a caller reads only if nobody else does and the session does not listen, and a caller
//     who stops before nothing is under way, as all do when the client is closed, wakes the
//     reader;
//   - the reader, when nothing is under way, reads nothing until it is woken;
//   - the connection ends a read at armed, which is no later than deadline.
type reading struct {
	active   bool          // somebody reads
	wake     chan struct{} // receives when the reader is to read
	resume   *time.Timer   // wakes the reader if nobody reads
	deadline time.Time     // until when to wait for the server
	armed    time.Time
}

// startReading makes the caller the one who reads, if that may be. It is called with s.mu
// held.
func (s *session) startReading() bool {
	if s.active || s.listens {
		return false
	}
	s.active = true
	return true
}

// sendAndRead queues c as start does, and reads until c is answered if nobody else
// reads. It gives up when ctx ends, and at until if that is not zero. It reports
// whether c is answered. False means that the answer comes later.
func (s *session) sendAndRead(ctx context.Context, c *call, until time.Time) bool {
	if !s.submit(true, c) {
		return false
	}
	if !until.IsZero() {
		s.limitRead(until)
	}
	if ctx.Done() != nil {
		defer context.AfterFunc(ctx, s.interrupt)()
	}
	for !c.answered {
		if ctx.Err() != nil || s.backend.ctx.Err() != nil || !until.IsZero() && time.Now().After(until) {
			s.wakeReader()
			return false
		}
		idle, err := s.readMessage()
		if err != nil {
			s.kill(err)
			s.wakeReader()
			return false
		}
		if idle {
			return true
		}
	}
	s.wakeReader()
	return true
}

// interrupt makes the goroutine that reads return from its read.
func (s *session) interrupt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.arm(time.Unix(1, 0))
}

// limitRead makes the goroutine that reads return from its read at t.
func (s *session) limitRead(t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.armed.After(t) {
		s.arm(t)
	}
}

// wakeReader has the reader continue in place of the caller that reads.
func (s *session) wakeReader() { s.wake <- struct{}{} }

// ensureReader wakes the reader if nobody reads. It is called with s.mu held.
func (s *session) ensureReader() {
	if !s.active {
		s.active = true
		s.wakeReader()
	}
}

// resumeReading has the reader listen when nobody has used the connection for a while.
func (s *session) resumeReading() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.active {
		s.setDeadline(time.Now().Add(s.ttl / 2))
		s.ensureReader()
	}
}

// stopReading reports whether nobody has to read now that nothing is under way. It is
// called with s.mu held.
func (s *session) stopReading() bool {
	if s.listens || s.dead != nil {
		s.setDeadline(time.Now().Add(s.ttl / 2))
		return false
	}
	s.active = false
	delay := time.Duration(s.backend.readerDelay.Load())
	if s.resume == nil {
		s.resume = time.AfterFunc(delay, s.resumeReading)
	} else {
		s.resume.Reset(delay)
	}
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
