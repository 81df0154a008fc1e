package faultnet

import (
	"fmt"
	"sync"
	"time"
)

// Way is a direction of traffic, or both.
type Way uint8

// The directions of traffic.
const (
	ToServer Way = 1 << iota
	ToClient
	BothWays = ToServer | ToClient
)

// Delay adds latency to everything that goes the given way, and to each chunk
// up to jitter more. It limits no throughput and keeps the order. A change
// applies to bytes that are under way too: with zeroes they arrive at once.
func (p *Proxy) Delay(way Way, latency, jitter time.Duration) {
	for _, g := range p.gates(way) {
		g.change(func() { g.latency, g.jitter = latency, jitter })
	}
}

// Blackhole holds back everything that goes the given way, the end of a stream
// included, until [Proxy.Restore]. Connections stay open. New ones are accepted
// but silent: the target is dialled only when the way to the server is open.
// The proxy takes in a bounded amount, then senders block as on a full window.
func (p *Proxy) Blackhole(way Way) {
	for _, g := range p.gates(way) {
		g.change(func() { g.shut = true })
	}
}

// Restore ends a blackhole: what was held back is delivered, then traffic flows.
func (p *Proxy) Restore(way Way) {
	for _, g := range p.gates(way) {
		g.change(func() { g.shut = false })
	}
}

// Reset ends every live connection with a RST to both of its ends.
func (p *Proxy) Reset() {
	for _, l := range p.live() {
		l.reset()
	}
}

// Refuse makes connects to the proxy fail with "connection refused" until
// [Proxy.Admit]. Live connections are left alone.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		p.listener.Close()
		p.listener = nil
	}
}

// Admit ends Refuse. It fails when the port cannot be listened on again.
func (p *Proxy) Admit() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.listener != nil {
		return nil
	}
	ln, err := listen(p.addr)
	if err != nil {
		return fmt.Errorf("dlock: faultnet: listen again: %w", err)
	}
	p.serve(ln)
	return nil
}

// Heal ends every fault and disarms every [Drop] that has not matched yet. It
// fails only as [Proxy.Admit] does, with everything else healed.
func (p *Proxy) Heal() error {
	p.disarmAll()
	p.Delay(BothWays, 0, 0)
	p.Restore(BothWays)
	return p.Admit()
}

func (p *Proxy) gates(way Way) []*gate {
	var gates []*gate
	if way&ToServer != 0 {
		gates = append(gates, p.toServer)
	}
	if way&ToClient != 0 {
		gates = append(gates, p.toClient)
	}
	return gates
}

func (p *Proxy) live() []*link {
	p.mu.Lock()
	defer p.mu.Unlock()
	links := make([]*link, 0, len(p.links))
	for l := range p.links {
		links = append(links, l)
	}
	return links
}

// gate decides when bytes may pass one way. All connections share it.
type gate struct {
	mu      sync.Mutex
	shut    bool
	latency time.Duration
	jitter  time.Duration
	changed chan struct{} // closed and replaced at every change
}

func newGate() *gate { return &gate{changed: make(chan struct{})} }

func (g *gate) change(apply func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	apply()
	close(g.changed)
	g.changed = make(chan struct{})
}

// pass blocks until what arrived at the given time may go on, and reports
// whether it may: false means that done was closed first. Share is the part of
// the jitter that applies, 0 to 1.
func (g *gate) pass(arrived time.Time, share float64, done <-chan struct{}) bool {
	for {
		shut, delay, changed := g.state(share)
		rest := time.Until(arrived.Add(delay))
		if !shut && rest <= 0 {
			return true
		}
		var due <-chan time.Time
		if !shut {
			due = time.After(rest)
		}
		select {
		case <-due:
		case <-changed:
		case <-done:
			return false
		}
	}
}

func (g *gate) state(share float64) (shut bool, delay time.Duration, changed <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shut, g.latency + time.Duration(share*float64(g.jitter)), g.changed
}
