package zk

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// hosts offers the servers to the driver in turn. Unlike the driver's own it
// leaves resolving names and pausing to dial.
type hosts struct {
	servers []string
	turn    int
	over    <-chan struct{}
}

// Init implements the driver's HostProvider.
func (h *hosts) Init(servers []string) error {
	h.servers = servers
	return nil
}

// Len implements the driver's HostProvider.
func (h *hosts) Len() int { return len(h.servers) }

// Next implements the driver's HostProvider. Its second result makes the driver
// look whether it has been closed.
func (h *hosts) Next() (server string, lookUp bool) {
	server = h.servers[h.turn%len(h.servers)]
	h.turn++
	select {
	case <-h.over:
		return server, true
	default:
		return server, false
	}
}

// Connected implements the driver's HostProvider.
func (h *hosts) Connected() {}

// dial connects to a server. It fails for ever once the session is over: that
// keeps the driver from beginning another.
func (s *session) dial(network, addr string, timeout time.Duration) (net.Conn, error) {
	if s.isLate() {
		s.end(errUnheard)
	}
	l := &link{session: s}
	s.mu.Lock()
	if s.link != nil {
		if s.link.wasSilent() {
			s.silences++
		}
		l.pause, l.failures = s.link.pause, s.link.failures
		if !s.link.greeted || s.link.spoilt {
			l.failures++
		}
	}
	s.link = l
	s.mu.Unlock()
	if l.failures > 0 && !backend.Sleep(s.ctx, l.pause.Next()) {
		return nil, net.ErrClosed
	}
	ctx, cancel := backend.Bound(s.ctx, timeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err == nil && s.b.opts.TLS != nil {
		conn, err = encrypt(conn, addr, s.b.opts.TLS, timeout)
	}
	if err != nil {
		return nil, err
	}
	if !l.attach(conn) {
		conn.Close()
		return nil, net.ErrClosed
	}
	return l, nil
}

// isLate reports whether the session has been without a connection for so long
// that it is better to begin another: a server that has lost its data does not
// even say that it does not know the session.
func (s *session) isLate() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.connected && !s.since.IsZero() && time.Since(s.since) > 2*s.timeout
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

// close ends the driver, with a farewell if it has a connection.
func (s *session) close() {
	s.mu.Lock()
	l := s.link
	s.mu.Unlock()
	if l != nil && !l.bye.begin() {
		s.cut()
	}
	s.conn.Close() // may take a second to say farewell
	s.cut()
}

// cut breaks the connection without a farewell.
func (s *session) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link != nil && s.link.Conn != nil {
		s.link.Conn.Close()
	}
}

// A link is one connection to one server. It reads along when the server opens
// the session, for the driver does not tell which timeout was granted, and
// notes when something was sent.
type link struct {
	net.Conn
	session *session
	reader  *bufio.Reader // the driver reads the length of a message by itself
	left    uint64        // bytes of the message that is being read
	hailed  time.Time     // when the session was asked for
	rewatch rewatch
	bye     farewell

	// Guarded by session.mu for others than the driver.
	pause    backend.Backoff
	failures int  // how many links right before it came to nothing
	greeted  bool // the server has opened the session
	spoilt   bool // the server did not take its watches

	mu      sync.Mutex
	opened  time.Time     // when it was asked for the session
	sends   [16]time.Time // a ring
	at      int           // of the next one
	pending []exchange    // the requests without an answer
	onWatch bool          // a timer is set for them
	silent  bool          // it was broken for want of an answer
}

func (l *link) attach(conn net.Conn) bool {
	l.session.mu.Lock()
	defer l.session.mu.Unlock()
	l.Conn, l.reader = conn, bufio.NewReader(conn)
	return l.session.cause == nil
}

// Read implements net.Conn.
func (l *link) Read(b []byte) (int, error) {
	if l.left == 0 {
		if err := l.next(); err != nil {
			return 0, err
		}
	}
	n, err := l.reader.Read(b[:min(uint64(len(b)), l.left)])
	l.left -= uint64(n)
	if err != nil {
		l.bye.comeBack()
	}
	return n, err
}

// head is how much of a message is looked at: length, number of the request, number
// of the change, error, and what the answer begins with.
const headLength = 24

// next waits for the beginning of a message that the driver may have.
func (l *link) next() error {
	l.bye.comeBack()
	for {
		head, err := l.reader.Peek(4)
		if err != nil {
			return err
		}
		length := binary.BigEndian.Uint32(head)
		if length < headLength-8 || length > receiveBuffer {
			return errNonsense
		}
		if head, err = l.reader.Peek(int(min(4+length, headLength))); err != nil {
			return err
		}
		l.left = 4 + uint64(length)
		if !l.greeted {
			return l.greet(head, length)
		}
		l.rewatch.hold(l.session, head)
		if err := l.answered(head); err != nil {
			return err
		}
		if l.bye.lets(head) {
			return nil
		}
		if _, err := io.CopyN(io.Discard, l.reader, int64(l.left)); err != nil {
			return err
		}
	}
}

// leastTimeout is the least timeout of a session, in milliseconds, that is taken for one.
// The driver pings three times as often, and panics if that is no time at all.
const leastTimeout = 10

// greet takes the timeout and the id of the session from the beginning of the
// server's first message: length, version, timeout in milliseconds, id, length of the
// password.
func (l *link) greet(head []byte, length uint32) error {
	if len(head) < headLength || binary.BigEndian.Uint32(head[20:]) > length-20 {
		return errNonsense
	}
	id, timeout := int64(binary.BigEndian.Uint64(head[12:])), int32(binary.BigEndian.Uint32(head[8:]))
	if id != 0 && timeout < leastTimeout {
		return errNonsense
	}
	s := l.session
	s.mu.Lock()
	defer s.mu.Unlock()
	l.greeted, l.failures = true, 0
	s.trip.Observe(time.Since(l.hailed))
	l.rewatch.begin(s)
	if id != 0 {
		s.id, s.timeout = id, time.Duration(timeout)*time.Millisecond
	}
	return nil
}

// SetReadDeadline implements net.Conn. The driver would wait for several
// session timeouts for a server that accepts connections and says nothing.
func (l *link) SetReadDeadline(t time.Time) error {
	if limit := time.Now().Add(l.greetLimit()); !l.greeted && t.After(limit) {
		t = limit
	}
	return l.Conn.SetReadDeadline(t)
}

// greetLimit is how long a server may take to open a session: not so long that there
// is no time for another, but longer each time that none of them did.
func (l *link) greetLimit() time.Duration {
	limit := leastLimit << min(l.failures, 4)
	if len(l.session.b.servers) == 1 {
		return max(limit, backend.FirstAnswer)
	}
	return limit
}

// Write implements net.Conn. A failure ends the connection and is not told: the
// driver would answer the request at once and, when the connection has ended,
// once more. It waits for ever then if the caller has left.
func (l *link) Write(b []byte) (int, error) {
	if !l.session.b.opts.Standalone {
		l.note(time.Now())
	}
	l.rewatch.note(b)
	l.bye.note(b)
	if l.greeted {
		l.expect(b)
	} else {
		l.hailed = time.Now()
	}
	if _, err := l.Conn.Write(b); err != nil {
		l.Conn.Close()
	}
	return len(b), nil
}

// What some kinds of requests ask for.
const (
	closeSession = -11
	getACL       = 6
	getChildren  = 12
	setWatches   = 101
)

// codeOf returns what a request asks for: it is length, number, code. Zero is what
// begins a session.
func codeOf(request []byte) int32 {
	if len(request) < 12 {
		return 0
	}
	return int32(binary.BigEndian.Uint32(request[8:]))
}

// note remembers that something is sent, unless something was just before.
func (l *link) note(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.opened.IsZero() {
		l.opened = now
	}
	last := l.sends[(l.at+len(l.sends)-1)%len(l.sends)]
	if now.Sub(last) < relay/8 {
		return
	}
	l.sends[l.at] = now
	l.at = (l.at + 1) % len(l.sends)
}

// lastSend returns the latest time up to t at which something was sent, or that
// of the request for the session, which the leader itself has answered.
func (l *link) lastSend(t time.Time) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := l.opened
	for _, at := range l.sends {
		if !at.After(t) && at.After(last) {
			last = at
		}
	}
	return last
}
