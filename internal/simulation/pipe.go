package simulation

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

var errReset = &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}

// A pipe carries bytes one way. Its writer never blocks, and the reader, one goroutine at a time,
// gets what was written when it is due.
type pipe struct {
	mu     sync.Mutex
	chunks []chunk
	last   time.Time // when what was written last is due
	closed bool      // no more will be written
	unread bool      // nobody reads any more: what is written vanishes
	err    error     // why nothing can be read any more
	until  time.Time // deadline of the reader
	receipts
	wake  chan struct{}
	timer *time.Timer // of the reader; nil: it has never had to wait for a time

	delay func(n int) time.Duration  // of what is written now
	held  func() time.Time           // nothing arrives before that
	drop  func(b []byte) bool        // whether it gets lost
	tears func(b []byte) (int, bool) // whether no more of it arrives than that, and then nothing
	torn  func(at time.Time)         // called when the last has been put that arrives
	late  func() bool                // whether a reader that comes after its deadline gets nothing that came before
}

type chunk struct {
	due  time.Time
	data []byte // nil: the end
}

func newPipe() *pipe { return &pipe{wake: make(chan struct{}, 1)} }

func (p *pipe) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *pipe) write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.err != nil:
		return 0, p.err
	case p.closed:
		return 0, net.ErrClosed
	case p.drop(b), p.unread:
		p.missed = true
		return len(b), nil
	}
	n, torn := p.tears(b)
	p.missed = p.missed || torn
	p.put(append([]byte(nil), b[:n]...))
	if torn {
		p.torn(p.last)
	}
	return len(b), nil
}

// put is called with p.mu held.
func (p *pipe) put(data []byte) {
	due := time.Now().Add(p.delay(len(data)))
	if due.Before(p.last) {
		due = p.last
	}
	p.last = due
	p.sent += len(data)
	p.chunks = append(p.chunks, chunk{due, data})
	p.poke()
}

// end lets the reader have what is under way and then the end.
func (p *pipe) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.closed = true
		if p.err == nil && !p.drop(nil) {
			p.put(nil)
		}
	}
}

// fail ends the pipe for both sides at once.
func (p *pipe) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil && !p.unread {
		p.err = err
	}
	p.poke()
}

// abandon ends the pipe for the reader alone: the writer does not hear of it.
func (p *pipe) abandon() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unread = true
	p.poke()
}

func (p *pipe) deadline(t time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.until = t
	p.poke()
}

func (p *pipe) read(b []byte) (int, error) {
	for {
		n, wait, err := p.ready(b)
		if n > 0 || err != nil {
			return n, err
		}
		if wait < 0 {
			<-p.wake
			continue
		}
		if p.timer == nil {
			p.timer = time.NewTimer(wait)
		} else {
			p.timer.Reset(wait)
		}
		select {
		case <-p.wake:
			p.timer.Stop()
		case <-p.timer.C:
		}
	}
}

// ready reads what is due, or says how long to wait; less than 0 is for ever.
func (p *pipe) ready(b []byte) (n int, wait time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.err != nil {
		return 0, 0, p.err
	}
	if p.unread {
		return 0, 0, net.ErrClosed
	}
	if !p.until.IsZero() && !now.Before(p.until) && !p.cameInTime() {
		return 0, 0, os.ErrDeadlineExceeded
	}
	wait = -1
	if len(p.chunks) > 0 {
		head := &p.chunks[0]
		due := head.due
		if h := p.held(); h.After(due) {
			due = h
		}
		if wait = due.Sub(now); wait <= 0 {
			if head.data == nil {
				return 0, 0, io.EOF
			}
			n = copy(b, head.data)
			p.receive(n)
			if head.data = head.data[n:]; len(head.data) == 0 {
				p.chunks = p.chunks[1:]
			}
			return n, 0, nil
		}
	}
	if !p.until.IsZero() {
		if d := p.until.Sub(now); wait < 0 || d < wait {
			wait = d
		}
	}
	return 0, wait, nil
}

// cameInTime reports whether a reader that has stood still until its deadline was over gets what
// came before that.
func (p *pipe) cameInTime() bool {
	return len(p.chunks) > 0 && p.chunks[0].due.Before(p.until) && p.held().Before(p.until) && !p.late()
}

// A conn is one end of a connection.
type conn struct {
	in, out *pipe
	addr    address
	link    *link

	comesTo func(point)
}

type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.in.read(b)
	c.comesTo(atAnswer)
	return n, err
}

func (c *conn) Write(b []byte) (int, error) {
	c.comesTo(atSend)
	n, err := c.out.write(b)
	c.comesTo(atSent)
	return n, err
}

func (c *conn) Close() error {
	c.out.end()
	c.in.fail(net.ErrClosed)
	return nil
}

// hangUp ends a connection as who has sent something gets it, and then the end.
func (c *conn) hangUp() {
	c.out.end()
	c.in.abandon()
}

func (c *conn) LocalAddr() net.Addr               { return c.addr }
func (c *conn) RemoteAddr() net.Addr              { return c.addr }
func (c *conn) SetReadDeadline(t time.Time) error { c.in.deadline(t); return nil }
func (c *conn) SetWriteDeadline(time.Time) error  { return nil }
func (c *conn) SetDeadline(t time.Time) error     { return c.SetReadDeadline(t) }
