package zk

import (
	"encoding/binary"
	"slices"
	"time"
)

// An exchange is a request that the server has not answered.
type exchange struct {
	number uint32
	code   int32
	sent   time.Time
}

// leastLimit is how long any server may take to answer: it may be collecting garbage
// or waiting for a disk.
const leastLimit = time.Second

// answerLimit is after what time an answer is not to be expected any more. It follows
// what answers have taken, and doubles each time that none came: a whole ensemble may
// be slow. The driver itself waits for two thirds of a session, in which other members
// could have answered. With Strict a connection is not broken before that.
func (s *session) answerLimit() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	most := s.timeout * 2 / 3
	if s.b.opts.Strict {
		return most
	}
	return min(s.trip.Limit(leastLimit, most)<<min(s.silences, 8), most)
}

// expect notes that a request is about to be sent.
func (l *link) expect(request []byte) {
	if len(request) < 12 {
		return
	}
	e := exchange{binary.BigEndian.Uint32(request[4:]), codeOf(request), time.Now()}
	l.mu.Lock()
	l.pending = append(l.pending, e)
	begins := !l.onWatch
	l.onWatch = true
	l.mu.Unlock()
	if begins {
		time.AfterFunc(leastLimit, func() { l.watchOver(time.Time{}) })
	}
}

// watchOver breaks the connection if the server owes an answer for too long. It looks
// twice: this process may have been stopped, and the answer be there to be read.
func (l *link) watchOver(suspect time.Time) {
	limit, used := l.session.answerLimit(), l.session.uses(l)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.onWatch = used && len(l.pending) > 0; !l.onWatch {
		return
	}
	oldest := l.pending[0].sent
	switch late := time.Since(oldest) - limit; {
	case late < 0:
		time.AfterFunc(min(-late, leastLimit), func() { l.watchOver(time.Time{}) })
	case oldest != suspect:
		time.AfterFunc(limit/8, func() { l.watchOver(oldest) })
	default:
		l.silent = true
		l.Conn.Close()
	}
}

func (l *link) wasSilent() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.silent
}

// uses reports whether l is the connection of s.
func (s *session) uses(l *link) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.link == l && s.connected
}

// answered takes note of an answer, of which head is the beginning. The driver would
// make room for as many children as the answer says there are, and goes on if the
// server does not take its watches.
func (l *link) answered(head []byte) error {
	const event = ^uint32(0)
	number := binary.BigEndian.Uint32(head[4:])
	if number == event {
		return nil
	}
	e, ok := l.settle(number)
	if !ok {
		return nil
	}
	s := l.session
	s.trip.Observe(time.Since(e.sent))
	failed := binary.BigEndian.Uint32(head[16:]) != 0
	s.mu.Lock()
	s.silences = 0
	l.pause.Reset()
	l.spoilt = l.spoilt || failed && e.code == setWatches
	spoilt := l.spoilt
	s.mu.Unlock()
	lists := e.code == getACL || e.code == getChildren
	if spoilt || lists && !failed && (len(head) < headLength || uint64(binary.BigEndian.Uint32(head[20:])) > l.left/4) {
		return errNonsense
	}
	return nil
}

// settle returns the request that an answer is to.
func (l *link) settle(number uint32) (exchange, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, e := range l.pending {
		if e.number == number {
			l.pending = slices.Delete(l.pending, i, i+1)
			return e, true
		}
	}
	return exchange{}, false
}
