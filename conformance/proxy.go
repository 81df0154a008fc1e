package conformance

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/faultnet"
)

// A Proxy stands between one client and its server on loopback and disturbs what
// passes, whatever the protocol. Without a [Framing] it sees chunks of bytes, as
// they come: enough for [Proxy.Cut] and [Proxy.Delay], also of TLS, and for
// [Proxy.DropReply] where a client sends one request at a time. Its methods are
// safe for concurrent use.
type Proxy struct{ net *faultnet.Proxy }

// A Framing tells where requests and replies of a protocol end. It is called once for
// each connection, so that what it returns can keep state:
//
//	func() (requests, replies Splitter)
type Framing = faultnet.Framing

// A Splitter finds the first unit of b, the bytes of one direction that belong to no
// earlier unit. A unit of size 0 means that b does not hold a whole one yet. With ok
// false b is not the protocol, and the rest of that direction passes unseen.
//
//	func(b []byte) (u Unit, ok bool)
type Splitter = faultnet.Splitter

// A Unit is the smallest part of a protocol that stands alone.
//
//	Size   int    // bytes, its header included
//	Counts bool   // it is a request, or completes a reply
//	Stream uint32 // replies answer the requests of their stream in order
type Unit = faultnet.Unit

// NewProxy starts a proxy before target, a host:port. The framing may be nil.
func NewProxy(t testing.TB, target string, f Framing) *Proxy {
	t.Helper()
	p, err := faultnet.Listen(target)
	if err != nil {
		t.Fatal(err)
	}
	p.SetFraming(f)
	return &Proxy{p}
}

// Addr returns the host:port that the client connects to.
func (p *Proxy) Addr() string { return p.net.Addr() }

// Close ends the proxy, after its client: [Proxy.Disturb] sees to that.
func (p *Proxy) Close() { _ = p.net.Close() }

// Reset ends every connection of the client, as seen from both ends.
func (p *Proxy) Reset() { p.net.Reset() }

// DialContext connects to the proxy, whatever address is asked for: it is what a
// driver takes as its dialer.
func (p *Proxy) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return p.net.DialContext(ctx, network, address)
}

// Cut holds back everything, both ways, until heal. Then it arrives late, complete
// and in order, as after a partition. New connections are accepted and silent.
func (p *Proxy) Cut() (heal func()) {
	p.net.Blackhole(faultnet.BothWays)
	return func() { p.net.Restore(faultnet.BothWays) }
}

// Delay holds back what the server sends, for d each time. Zero ends it.
func (p *Proxy) Delay(d time.Duration) { p.net.Delay(faultnet.ToClient, d, 0) }

// DropReply lets the next request through and resets the connection in place of
// the reply.
func (p *Proxy) DropReply() { p.net.DropReply(1) }

// DropReplyTo is DropReply for the next request for which match is true.
func (p *Proxy) DropReplyTo(match func(request []byte) bool) { p.net.DropReplyAfter(match) }

// Requests returns how many requests have passed. Without a framing there are none.
func (p *Proxy) Requests() int64 { return p.net.Stats().Requests }

// Conns returns how many connections of the client are open.
func (p *Proxy) Conns() int { return p.net.Stats().Live }

// Disturb gives peer the faults of p: [Peer.Cut], [Peer.Delay] and
// [Peer.DropReply]. The proxy is closed when the peer has been.
func (p *Proxy) Disturb(peer *Peer) {
	peer.Cut, peer.Delay, peer.DropReply, peer.Closed = p.Cut, p.Delay, p.DropReply, p.Close
}
