package zk

import (
	"encoding/binary"
	"slices"
	"time"
)

// minTimeout is how long any server may take to answer. It may be collecting garbage or
// waiting for a disk.
const minTimeout = time.Second

// A pendingRequest is a request that the server has not answered.
type pendingRequest struct {
	number uint32
	code   int32
	sent   time.Time
}

// answerTimeout is how long a server may leave a request unanswered before the client
// turns to another. It follows what answers have taken, and doubles with each timeout,
// because a whole ensemble may be slow. It is two thirds of a session at most, after which
// the driver itself gives up; with Strict always, because a broken connection costs every
// lock.
func (s *session) answerTimeout() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	most := s.timeout * 2 / 3
	if s.backend.opts.Strict {
		return most
	}
	return min(s.roundTrip.Limit(minTimeout, most)<<min(s.timeouts, 8), most)
}

// addPending notes a request that is about to be sent.
func (c *connection) addPending(request []byte) {
	if len(request) < 12 {
		return
	}
	r := pendingRequest{binary.BigEndian.Uint32(request[4:]), codeOf(request), time.Now()}
	c.mu.Lock()
	c.pending = append(c.pending, r)
	first := !c.isChecking
	c.isChecking = true
	c.mu.Unlock()
	if first {
		time.AfterFunc(minTimeout, func() { c.checkPending(time.Time{}) })
	}
}

// checkPending closes the connection if the oldest request has timed out. It checks twice,
// the second time with when the late request was sent: if this process was stopped, the
// answer may be there to be read.
func (c *connection) checkPending(late time.Time) {
	timeout, inUse := c.session.answerTimeout(), c.session.usesConnection(c)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isChecking = inUse && len(c.pending) > 0; !c.isChecking {
		return
	}
	oldest := c.pending[0].sent
	switch left := timeout - time.Since(oldest); {
	case left > 0:
		time.AfterFunc(min(left, minTimeout), func() { c.checkPending(time.Time{}) })
	case oldest != late:
		time.AfterFunc(timeout/8, func() { c.checkPending(oldest) })
	default:
		c.timedOut = true
		c.Conn.Close()
	}
}

func (c *connection) hasTimedOut() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.timedOut
}

func (s *session) usesConnection(c *connection) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.connection == c && s.connected
}

// handleAnswer notes an answer by its head. It refuses a list that is longer than the
// answer, for which the driver would make room, and a refusal of watches, which the driver
// would not notice.
func (c *connection) handleAnswer(head []byte) error {
	const event = ^uint32(0)
	number := binary.BigEndian.Uint32(head[4:])
	if number == event {
		return nil
	}
	r, ok := c.removePending(number)
	if !ok {
		return nil
	}
	s := c.session
	s.roundTrip.Observe(time.Since(r.sent))
	failed := binary.BigEndian.Uint32(head[16:]) != 0
	s.mu.Lock()
	s.timeouts = 0
	c.pause.Reset()
	c.watchesRefused = c.watchesRefused || failed && r.code == setWatches
	refused := c.watchesRefused
	s.mu.Unlock()
	lists := r.code == getACL || r.code == getChildren
	if refused || lists && !failed && (len(head) < headLength || uint64(binary.BigEndian.Uint32(head[20:])) > c.unread/4) {
		return errInvalidAnswer
	}
	return nil
}

// removePending returns the request of an answer.
func (c *connection) removePending(number uint32) (pendingRequest, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.pending, func(r pendingRequest) bool { return r.number == number })
	if i < 0 {
		return pendingRequest{}, false
	}
	r := c.pending[i]
	c.pending = slices.Delete(c.pending, i, i+1)
	return r, true
}
