package conformance_test

import (
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/conformance"
	"github.com/dlock-go/dlock/internal/faultnet"
)

// A proxied server has a proxy before it for each of its clients.
type proxied struct {
	target  string
	framing faultnet.Framing

	mu      sync.Mutex
	proxies []*faultnet.Proxy
}

// listen returns the proxy of a new client.
func (p *proxied) listen(t testing.TB) *faultnet.Proxy {
	t.Helper()
	proxy, err := faultnet.Listen(p.target)
	must(t, err)
	proxy.SetFraming(p.framing)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.proxies = append(p.proxies, proxy)
	return proxy
}

// requests counts what all clients have sent.
func (p *proxied) requests() (n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, proxy := range p.proxies {
		n += proxy.Stats().Requests
	}
	return n
}

// connections counts those that clients have open.
func (p *proxied) connections() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, proxy := range p.proxies {
		n += proxy.Stats().Live
	}
	return n
}

// peer returns a client of b, which reaches its server through proxy.
func (p *proxied) peer(t testing.TB, b backend.Backend, o dlock.Options, proxy *faultnet.Proxy) *conformance.Peer {
	t.Helper()
	c, err := dlock.New(b, &o)
	must(t, err)
	return &conformance.Peer{
		Client:  c,
		Backend: b,
		Cut: func() func() {
			proxy.Blackhole(faultnet.BothWays)
			return func() { proxy.Restore(faultnet.BothWays) }
		},
		Delay:     func(d time.Duration) { proxy.Delay(faultnet.ToClient, d, 0) },
		DropReply: func() { proxy.DropReply(1) },
		Closed:    func() { must(t, proxy.Close()) },
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
