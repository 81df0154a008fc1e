package zk

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"net"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// dial connects to a server. It fails for ever once the session has ended, because the
// driver would begin another session.
func (s *session) dial(network, addr string, timeout time.Duration) (net.Conn, error) {
	if s.isStale() {
		s.end(errSilent)
	}
	c := s.newConnection()
	if c.failures > 0 && !backend.Sleep(s.ctx, c.pause.Next()) {
		return nil, net.ErrClosed
	}
	ctx, cancel := backend.Bound(s.ctx, timeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err == nil && s.backend.opts.TLS != nil {
		conn, err = encrypt(conn, addr, s.backend.opts.TLS, timeout)
	}
	if err != nil {
		s.noteUnreached(addr, err)
		return nil, err
	}
	if !c.attach(conn) {
		conn.Close()
		return nil, net.ErrClosed
	}
	return c, nil
}

// isStale reports whether the session has had no connection for so long that it is
// better to begin another. A server that has lost its data does not even say that it does
// not know the session.
func (s *session) isStale() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.connected && !s.disconnectedAt.IsZero() && time.Since(s.disconnectedAt) > 2*s.timeout
}

// newConnection replaces the connection of s by one that is not open yet.
func (s *session) newConnection() *connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &connection{session: s}
	if last := s.connection; last != nil {
		if last.hasTimedOut() {
			s.timeouts++
		}
		c.pause, c.failures = last.pause, last.failures
		if !last.established || last.watchesRefused {
			c.failures++
		}
	}
	s.connection = c
	return c
}

func encrypt(conn net.Conn, addr string, config *tls.Config, timeout time.Duration) (net.Conn, error) {
	config = config.Clone()
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(addr)
	}
	secure := tls.Client(conn, config)
	_ = conn.SetDeadline(time.Now().Add(timeout))
	if err := secure.Handshake(); err != nil {
		conn.Close()
		return nil, err
	}
	_ = conn.SetDeadline(time.Time{})
	return secure, nil
}

func (s *session) closeConnection() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.connection != nil && s.connection.Conn != nil {
		s.connection.Conn.Close()
	}
}

// A connection is one connection of the driver to one server. It reads along what the
// driver does not tell: which session timeout the server has granted, and which requests
// are not answered yet.
type connection struct {
	net.Conn
	session    *session
	reader     *bufio.Reader
	unread     uint64 // bytes of the message that the driver is reading
	watchReset watchReset

	// Guarded by session.mu for others than the driver.
	pause          backend.Backoff
	failures       int  // connections right before this one that were of no use
	established    bool // the server has answered with a session
	watchesRefused bool

	mu         sync.Mutex
	openSent   time.Time     // when the driver asked for a session
	sends      [16]time.Time // a ring
	nextSend   int           // its next place
	pending    []pendingRequest
	isChecking bool // a timer is set for checkPending
	timedOut   bool // it was closed for want of an answer
}

// attach sets the network connection. It reports false if the session has ended.
func (c *connection) attach(conn net.Conn) bool {
	c.session.mu.Lock()
	defer c.session.mu.Unlock()
	c.Conn, c.reader = conn, bufio.NewReader(conn)
	return c.session.ctx.Err() == nil
}

// Read implements net.Conn.
func (c *connection) Read(b []byte) (int, error) {
	if c.unread == 0 {
		if err := c.nextMessage(); err != nil {
			return 0, err
		}
	}
	n, err := c.reader.Read(b[:min(uint64(len(b)), c.unread)])
	c.unread -= uint64(n)
	return n, err
}

// headLength is how much of a message is looked at: its length, the number of the
// request, the number of the last transaction, the error code, and the first word.
const headLength = 24

// nextMessage reads the head of the next message.
func (c *connection) nextMessage() error {
	head, err := c.reader.Peek(4)
	if err != nil {
		return err
	}
	length := binary.BigEndian.Uint32(head)
	if length < headLength-8 || length > receiveBuffer {
		return errInvalidAnswer
	}
	if head, err = c.reader.Peek(int(min(4+length, headLength))); err != nil {
		return err
	}
	c.unread = 4 + uint64(length)
	if !c.established {
		return c.handleConnectResponse(head, length)
	}
	c.watchReset.delay(c.session, head)
	return c.handleAnswer(head)
}

// minSessionTimeout is the least session timeout that is believed, in milliseconds. The
// driver divides it to get the time between pings, and panics if that is zero.
const minSessionTimeout = 10

// handleConnectResponse reads the head of the server's first message: length, version,
// session timeout in milliseconds, session id, length of the password.
func (c *connection) handleConnectResponse(head []byte, length uint32) error {
	if len(head) < headLength || binary.BigEndian.Uint32(head[20:]) > length-20 {
		return errInvalidAnswer
	}
	id, timeout := int64(binary.BigEndian.Uint64(head[12:])), int32(binary.BigEndian.Uint32(head[8:]))
	if id != 0 && timeout < minSessionTimeout {
		return errInvalidAnswer
	}
	c.mu.Lock()
	sent := c.openSent
	c.mu.Unlock()
	s := c.session
	s.mu.Lock()
	defer s.mu.Unlock()
	c.established, c.failures = true, 0
	s.roundTrip.Observe(time.Since(sent))
	c.watchReset.start(s)
	if id != 0 {
		s.id, s.timeout = id, time.Duration(timeout)*time.Millisecond
	}
	return nil
}

// SetReadDeadline implements net.Conn. The driver would wait for several session timeouts
// for the server's first message.
func (c *connection) SetReadDeadline(t time.Time) error {
	if limit := time.Now().Add(c.connectTimeout()); !c.established && t.After(limit) {
		t = limit
	}
	return c.Conn.SetReadDeadline(t)
}

// connectTimeout is how long a server may take to answer with a session. It leaves time
// for another server, and doubles with each failure.
func (c *connection) connectTimeout() time.Duration {
	timeout := minTimeout << min(c.failures, 4)
	if len(c.session.backend.servers) == 1 {
		return max(timeout, backend.FirstAnswer)
	}
	return timeout
}

// Write implements net.Conn. A failure closes the connection and is not returned: the
// driver would answer the request twice, now and when the connection has ended, and
// would wait for ever if the caller has left.
func (c *connection) Write(b []byte) (int, error) {
	c.noteSend(time.Now())
	c.watchReset.noteRequest(b)
	if c.established {
		c.addPending(b)
	}
	if _, err := c.Conn.Write(b); err != nil {
		c.Conn.Close()
	}
	return len(b), nil
}

// The codes of requests.
const (
	getACL      = 6
	getChildren = 12
	setWatches  = 101
)

// codeOf returns the code of a request, which follows its length and its number. It is
// zero for the request that opens a session.
func codeOf(request []byte) int32 {
	if len(request) < 12 {
		return 0
	}
	return int32(binary.BigEndian.Uint32(request[8:]))
}

// noteSend notes the time of a request, unless another was sent just before.
func (c *connection) noteSend(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.openSent.IsZero() {
		c.openSent = now
	}
	last := c.sends[(c.nextSend+len(c.sends)-1)%len(c.sends)]
	if now.Sub(last) < relayTime/8 {
		return
	}
	c.sends[c.nextSend] = now
	c.nextSend = (c.nextSend + 1) % len(c.sends)
}

// lastSend returns when the last request up to t was sent, or that for the session, which
// the leader itself has answered.
func (c *connection) lastSend(t time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.openSent
	for _, sent := range c.sends {
		if !sent.After(t) && sent.After(last) {
			last = sent
		}
	}
	return last
}
