package zk

// A look is a list of a long queue. All requests of a session that ask for it before it is
// sent share it: a list has each of them if it was sent after their nodes were created, and
// a server that lists a long queue for each of many has no time for anything else.
type look struct {
	done  chan struct{}
	queue queue // set before done is closed
	err   error
}

// The looks of a session at one lock: one is under way, and the next waits for its end.
type looks struct{ underWay, next *look }

// share returns a list of the queue that is sent after the call.
func (s *session) share(dir string) (queue, error) {
	s.mu.Lock()
	at := s.looks[dir]
	l, before := at.next, at.underWay
	first := l == nil
	if first {
		l = &look{done: make(chan struct{})}
		s.looks[dir] = looks{before, l}
	}
	s.mu.Unlock()
	if first {
		if before != nil {
			<-before.done
		}
		s.send(dir, l)
	}
	<-l.done
	return l.queue, l.err
}

// send sends the look that is next.
func (s *session) send(dir string, l *look) {
	s.mu.Lock()
	s.looks[dir] = looks{underWay: l}
	s.mu.Unlock()
	l.queue, _, l.err = s.listQueue(dir)
	s.mu.Lock()
	if at := s.looks[dir]; at.next == nil {
		delete(s.looks, dir)
	}
	s.mu.Unlock()
	close(l.done)
}
