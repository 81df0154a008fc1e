package zk

// A look is a list of a long queue. All requests of a session that ask for it before it is
// sent share it: a list has each of them if it was sent after their nodes were created, and
// a server that lists a long queue for each of many has no time for anything else.
type look struct {
	done  chan struct{}
	queue queue // set before done is closed
	err   error
}

// share returns a list of the queue that is sent after the call. One is under way at a time,
// and others wait meanwhile to share the next.
func (s *session) share(dir string) (queue, error) {
	s.mu.Lock()
	l := s.looks[dir]
	first := l == nil
	if first {
		l = &look{done: make(chan struct{})}
		s.looks[dir] = l
	}
	s.mu.Unlock()
	if first {
		s.looking.Lock()
		s.mu.Lock()
		delete(s.looks, dir)
		s.mu.Unlock()
		l.queue, _, l.err = s.listQueue(dir)
		s.looking.Unlock()
		close(l.done)
	}
	<-l.done
	return l.queue, l.err
}
