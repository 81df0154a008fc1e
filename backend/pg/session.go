package pg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

var (
	errSilent   = errors.New("the server did not answer")
	errProtocol = errors.New("unexpected answer of the server")
	errRetired  = errors.New("the connection was not needed any more")
	errMoved    = errors.New("the connection leads to another backend, or to a standby")
)

// A session is one connection. What its callers queue while an exchange with
// the server is under way goes out together in the next one. Whatever the
// server says unasked, such as its end, is read at once.
type session struct {
	backend *Backend
	pg      *pgconn.PgConn // only good for cancel requests
	conn    net.Conn
	front   *pgproto3.Frontend
	pid     uint32
	version int64 // of the server, as a number
	listens bool
	made    time.Time

	// Guarded by backend.mu.
	users  int // grants and requests
	grants map[*grant]struct{}
	shared bool // with all who have its lease; others wait for one lock, or have it, or are idle

	marks   atomic.Int32 // that it has
	raising sync.Mutex   // taken before mu; held while the sequences are moved

	writing sync.Mutex // taken after mu; held while the buffer is sent

	mu       sync.Mutex
	ttl      time.Duration
	deadline time.Time // until when to wait for the server
	armed    time.Time // when the connection ends a read, no later than deadline
	queue    []*call
	inFlight []statement // sent in the exchange that is under way
	at       int         // which of them is being answered
	sent     time.Time   // of what is in flight
	waits    bool        // for a lock, with what is in flight
	proven   time.Time   // when what was last answered had been sent
	failed   error       // of the statement being answered
	proof    *call       // that it is alive, under way
	looked   time.Time   // for those who wait, last
	raised   int64       // where the sequence was at raisedAt, when this session last moved it
	raisedAt time.Time
	dead     error
}

// read takes what the server says until the session is over.
func (s *session) read() {
	for {
		m, err := s.front.Receive()
		switch {
		case err == nil:
			err = s.handleMessage(m)
		case errors.Is(err, os.ErrDeadlineExceeded):
			err = s.deadlinePassed()
		}
		if err != nil {
			s.end(err)
			return
		}
	}
}

// setDeadline says until when to wait for the server. The connection is told
// of a later one only when the one that it knows has passed. It is called with s.mu held.
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

// deadlinePassed handles a read that has timed out. It returns nil if the session goes
// on. A session that nobody uses is closed.
func (s *session) deadlinePassed() error {
	s.mu.Lock()
	now := time.Now()
	moved, waiting := now.Before(s.deadline), len(s.inFlight) > 0
	if !moved && !waiting {
		s.deadline = now.Add(s.ttl / 2)
	}
	s.arm(s.deadline)
	s.mu.Unlock()
	switch {
	case moved:
		return nil
	case waiting:
		return errSilent
	case s.backend.retireUnused(s):
		s.terminate()
		return errRetired
	case s.listens || s.marks.Load() > 0: // it must stay alive although no hold on it is renewed
		s.renew(now)
	}
	return nil
}

// end takes down what is left of a session.
func (s *session) end(err error) {
	_ = s.conn.Close()
	s.mu.Lock()
	if s.dead == nil {
		s.dead = err
	}
	err = s.dead
	var left []*call
	for _, st := range s.inFlight[min(s.at, len(s.inFlight)):] {
		left = append(left, st.calls...)
	}
	left = append(left, s.queue...)
	s.inFlight, s.queue = nil, nil
	s.mu.Unlock()
	s.backend.loseSession(s, err)
	for _, c := range left {
		c.err = err
		c.deliver()
	}
}

// kill ends the session because of err. Nothing is asked of it any more.
func (s *session) kill(err error) {
	s.mu.Lock()
	if s.dead == nil {
		s.dead = err
	}
	s.mu.Unlock()
	_ = s.conn.Close() // the reader finds out
}

// survives reports whether err concerns one statement only and the session goes on.
func (s *session) survives(err error) bool {
	return codeOf(err) != "" && s.isAlive()
}

// endedByServer reports whether err says that the server, or the network, has ended the
// session. All its locks are free.
func (s *session) endedByServer(err error) bool {
	if s.isAlive() {
		return false
	}
	for _, end := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, end) {
			return true
		}
	}
	return strings.HasPrefix(codeOf(err), "57")
}

func (s *session) isAlive() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dead == nil
}

// cancel asks the server to give up what the session waits for, and kills the
// session if that cannot be done.
func (s *session) cancel(ctx context.Context) {
	if err := s.pg.CancelRequest(ctx); err != nil {
		s.kill(fmt.Errorf("cancel: %w", err))
	}
}

// terminate says goodbye, so that the server does not log a broken connection.
func (s *session) terminate() {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.front.Send(&pgproto3.Terminate{})
	_ = s.front.Flush()
}

// lease is how long the server keeps the session after it last heard of it.
func (s *session) lease() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ttl
}

// setLease gives a session that nobody uses another lease. The server gets it with the
// statement of the next user.
func (s *session) setLease(lease time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ttl == lease {
		return
	}
	s.ttl = lease
	if s.version < leaseVersion {
		return
	}
	s.queue = append(s.queue, &call{op: setTTL, arg: lease.Milliseconds(), onAnswer: func(c *call) {
		if c.err != nil {
			s.kill(c.err)
		}
	}})
}
