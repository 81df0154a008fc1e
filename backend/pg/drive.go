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

// drive queues c as start does, and reads until c is answered if nobody else
// reads. It gives up when ctx is done. It reports whether c is answered; false
// says nothing.
func (s *session) drive(ctx context.Context, c *call) bool {
	if !s.submit(c, true) {
		return false
	}
	if ctx.Done() != nil {
		defer context.AfterFunc(ctx, s.interrupt)()
	}
	for !c.answered {
		if ctx.Err() != nil || s.backend.ctx.Err() != nil {
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

// handOver makes the reader read in the place of the caller who does.
func (s *session) handOver() { s.rouse <- struct{}{} }

// alert makes the reader read if nobody does. It is called with s.mu held.
func (s *session) alert() {
	if !s.reading {
		s.reading = true
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
		timer.Reset(s.backend.nap)
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
	case s.reading:
		s.asleep = true
	default:
		s.reading = true
		s.setDeadline(time.Now().Add(s.ttl / 2))
	}
	return s.exchanges
}

func (s *session) wakeUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asleep = false
}
