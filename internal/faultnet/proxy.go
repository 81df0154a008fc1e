package faultnet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Proxy forwards TCP connections to a target and disturbs them on demand.
// [Listen] makes one. Its methods are safe for concurrent use.
type Proxy struct {
	addr     string
	anchor   *anchor
	toServer *gate
	toClient *gate
	wg       sync.WaitGroup

	requests    atomic.Int64
	serverBytes atomic.Int64
	clientBytes atomic.Int64

	mu       sync.Mutex
	target   string
	framing  Framing
	observe  func(conn int, req []byte)
	listener net.Listener // nil while connections are refused
	links    map[*link]struct{}
	armed    []*Drop
	accepted int
	closed   bool
}

// Stats are the counters of a proxy since it was made.
type Stats struct {
	Accepted int   // connections taken from clients
	Live     int   // connections that have not ended
	Requests int64 // requests forwarded on connections that have a framing
	Owed     int   // those of live connections that the server has not answered
	ToServer int64 // bytes passed on to the server
	ToClient int64 // bytes passed on to the client
}

// Listen starts a proxy on a free loopback port that forwards every connection
// to target, a host:port that need not be reachable yet.
func Listen(target string) (*Proxy, error) {
	ln, err := listen("127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("dlock: faultnet: listen: %w", err)
	}
	a, err := dropAnchor(ln)
	if err != nil {
		ln.Close()
		return nil, fmt.Errorf("dlock: faultnet: reserve port: %w", err)
	}
	p := &Proxy{
		addr:     ln.Addr().String(),
		anchor:   a,
		toServer: newGate(),
		toClient: newGate(),
		target:   target,
		links:    make(map[*link]struct{}),
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.serve(ln)
	return p, nil
}

// Addr returns the host:port that clients connect to. It never changes.
func (p *Proxy) Addr() string { return p.addr }

// SetTarget sends connections that are accepted from now on to target.
func (p *Proxy) SetTarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// SetFraming finds requests by f on connections that are accepted from now on.
// Nil, the default, takes the bytes as they come.
func (p *Proxy) SetFraming(f Framing) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.framing = f
}

// OnRequest calls fn with every request just before it is forwarded, on
// connections that have a framing. Connections are numbered from 1 in the order
// of their arrival. Fn runs for several connections at once, holds up its own,
// and may use req only until it returns. Nil removes it.
func (p *Proxy) OnRequest(fn func(conn int, req []byte)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.observe = fn
}

// Stats returns the counters of p.
func (p *Proxy) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	owed := 0
	for l := range p.links {
		owed += l.tracker.owing()
	}
	return Stats{
		Accepted: p.accepted,
		Live:     len(p.links),
		Requests: p.requests.Load(),
		Owed:     owed,
		ToServer: p.serverBytes.Load(),
		ToClient: p.clientBytes.Load(),
	}
}

// Close stops listening, resets every connection and waits for every goroutine
// of p to end. It always returns nil and may be called again.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Refuse()
	p.Reset()
	p.wg.Wait()
	p.anchor.close()
	return nil
}

// listen stays with plain TCP, whose listeners close at once and whose
// connections can be reset.
func listen(addr string) (net.Listener, error) {
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	return lc.Listen(context.Background(), "tcp", addr)
}

// serve accepts connections from ln. The caller holds p.mu.
func (p *Proxy) serve(ln net.Listener) {
	p.listener = ln
	p.wg.Go(func() { p.accept(ln) })
}

func (p *Proxy) accept(ln net.Listener) {
	const pause = 5 * time.Millisecond // for when the process is out of descriptors
	for {
		conn, err := ln.Accept()
		switch {
		case err == nil:
			p.admit(conn.(*net.TCPConn))
		case errors.Is(err, net.ErrClosed):
			return
		default:
			time.Sleep(pause)
		}
	}
}

func (p *Proxy) admit(client *net.TCPConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		client.Close()
		return
	}
	p.accepted++
	l := newLink(p, p.accepted, client, p.framing)
	p.links[l] = struct{}{}
	p.wg.Go(l.run)
}

func (p *Proxy) forget(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

func (p *Proxy) currentTarget() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.target
}

func (p *Proxy) observer() func(conn int, req []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.observe
}
