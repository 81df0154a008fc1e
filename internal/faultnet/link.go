package faultnet

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	readSize  = 32 << 10
	queueSize = 256 // chunks of at most readSize that one way takes in
)

// link is one client connection with its connection to the server. Each way has
// a goroutine that reads and one that writes, so that a delay postpones bytes
// without slowing the stream down.
type link struct {
	proxy   *Proxy
	id      int
	client  *net.TCPConn
	ctx     context.Context
	cancel  context.CancelFunc
	ending  sync.Once
	tracker *tracker

	mu     sync.Mutex
	server *net.TCPConn // nil until connected
	ended  bool
	halves int  // ways that have come to their end
	broken bool // a way came to its end by an error
}

// chunk is what one read returned: data, or the error that ended the stream.
type chunk struct {
	data    []byte
	err     error
	arrived time.Time
	share   float64 // of the jitter
}

func newChunk(data []byte, err error) chunk {
	return chunk{data: bytes.Clone(data), err: err, arrived: time.Now(), share: rand.Float64()}
}

// flow is one way of a link.
type flow struct {
	src, dst *net.TCPConn
	gate     *gate
	count    *atomic.Int64
	queue    chan chunk
	arrive   func(b []byte)     // sees bytes as soon as they are read
	deliver  func(b []byte) int // says how many bytes of b to write
	end      func(err error)
}

func newLink(p *Proxy, id int, client *net.TCPConn, f Framing) *link {
	ctx, cancel := context.WithCancel(context.Background())
	return &link{proxy: p, id: id, client: client, ctx: ctx, cancel: cancel, tracker: newTracker(f)}
}

func (l *link) run() {
	server, err := l.connect()
	if err != nil {
		l.reset()
		return
	}
	p := l.proxy
	l.start(&flow{
		src: l.client, dst: server, gate: p.toServer, count: &p.serverBytes,
		arrive: func([]byte) {}, deliver: l.forward, end: l.clientEnded,
	})
	l.start(&flow{
		src: server, dst: l.client, gate: p.toClient, count: &p.clientBytes,
		arrive: l.answer, deliver: l.reply, end: l.serverEnded,
	})
}

func (l *link) connect() (*net.TCPConn, error) {
	if !l.proxy.toServer.pass(time.Now(), 0, l.ctx.Done()) {
		return nil, net.ErrClosed
	}
	conn, err := new(net.Dialer).DialContext(l.ctx, "tcp", l.proxy.currentTarget())
	if err != nil {
		return nil, err
	}
	server := conn.(*net.TCPConn)
	if !l.attach(server) {
		server.Close()
		return nil, net.ErrClosed
	}
	return server, nil
}

func (l *link) attach(server *net.TCPConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.server = server
	return !l.ended
}

func (l *link) start(f *flow) {
	f.queue = make(chan chunk, queueSize)
	l.proxy.wg.Go(func() { l.read(f) })
	l.proxy.wg.Go(func() { l.write(f) })
}

func (l *link) read(f *flow) {
	buf := make([]byte, readSize)
	for {
		n, err := f.src.Read(buf)
		if n > 0 {
			f.arrive(buf[:n])
			l.enqueue(f, newChunk(buf[:n], nil))
		}
		if err != nil {
			l.enqueue(f, newChunk(nil, err))
			return
		}
	}
}

func (l *link) enqueue(f *flow, c chunk) {
	select {
	case f.queue <- c:
	case <-l.ctx.Done():
	}
}

func (l *link) write(f *flow) {
	for {
		c, ok := l.next(f)
		if !ok {
			return
		}
		if c.err != nil {
			f.end(c.err)
			return
		}
		data := c.data[:f.deliver(c.data)]
		f.count.Add(int64(len(data))) // first, so that a reply never overtakes it
		if _, err := f.dst.Write(data); err != nil {
			l.halfDone(true)
			return
		}
	}
}

// next waits for the next chunk and for the gate to let it pass.
func (l *link) next(f *flow) (chunk, bool) {
	select {
	case c := <-f.queue:
		return c, f.gate.pass(c.arrived, c.share, l.ctx.Done())
	case <-l.ctx.Done():
		return chunk{}, false
	}
}

// clientEnded passes the end of the client's stream on. While a reply is being
// dropped the server must not learn of it: it might abandon the request.
func (l *link) clientEnded(err error) {
	if !l.tracker.dropping() {
		l.passEnd(err, l.server)
	}
}

func (l *link) serverEnded(err error) {
	if l.tracker.dropping() {
		l.reset()
		return
	}
	l.passEnd(err, l.client)
}

func (l *link) passEnd(err error, dst *net.TCPConn) {
	if !errors.Is(err, io.EOF) {
		l.reset()
		return
	}
	l.halfDone(dst.CloseWrite() != nil)
}

// halfDone notes that one way is over. The other way goes on: after a failed
// write there may still be a last word of the peer to deliver.
func (l *link) halfDone(broken bool) {
	l.mu.Lock()
	l.halves++
	l.broken = l.broken || broken
	over, rst := l.halves == 2, l.broken
	l.mu.Unlock()
	if over {
		l.close(rst)
	}
}

// reset ends l with a RST to both ends.
func (l *link) reset() { l.close(true) }

func (l *link) close(rst bool) {
	l.ending.Do(func() {
		for _, c := range l.shutdown() {
			if rst {
				_ = c.SetLinger(0) // fails only on a connection that has ended
			}
			c.Close()
		}
		l.cancel()
		l.proxy.forget(l)
		l.tracker.fire()
	})
}

// shutdown marks l as ended and returns its connections.
func (l *link) shutdown() []*net.TCPConn {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	if l.server == nil {
		return []*net.TCPConn{l.client}
	}
	return []*net.TCPConn{l.client, l.server}
}
