package simulation

import (
	"math/rand/v2"
	"time"
)

// A client of a program's own may be impatient: it gives an answer up, and the connection with it, after 50 ms,
// and likewise an attempt to connect. Where answers come later than that now and then, calls may fail for it,
// as the outcome of each request is unknown then, and no lease is lost that has room for more attempts.

func init() {
	furtherKinds["impatient"] = touch{fails: true, connects: true}
	kinds["impatient"] = furtherKinds["impatient"]
}

// impatience is for how long such a client waits.
const impatience = 50 * time.Millisecond

// impatient draws such clients, where answers mostly come in time, and how often their commands are repeated.
// Sentinels are asked with a mutex held, by the same options.
func (g *generator) impatient() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 138))}
	p := g.plan
	if p.Backend == "memory" || p.Shelves || p.Fresh || p.Sentinels || len(p.Durable) > 0 || p.mostly() > impatience || !g.often(8) {
		return
	}
	for i := range p.Clients {
		c := &p.Clients[i]
		if c.Opens != nil || c.Asks || c.Lodges > 0 || !g.often(60) {
			continue
		}
		made := c.ownCopy()
		made.Timeout, made.Retries = impatience, pick(g.draw, -1, 0, 1, 8)
		c.Own = &made
		for j := range p.Clients {
			if p.Clients[j].Lodges == i+1 {
				p.Clients[j].Own = c.Own
			}
		}
	}
}

// mostly is how long an answer takes at most, but for a few.
func (p *Plan) mostly() time.Duration {
	d := 2 * (p.Latency + p.Jitter + p.Far)
	if p.Acks {
		d += 2 * p.Lag
	}
	return d
}

// losesPatience notes which clients may give up an answer at any time, though nothing is wrong.
func (w *world) losesPatience() {
	w.reg.mu.Lock()
	defer w.reg.mu.Unlock()
	for i, c := range w.plan.Clients {
		if c.Own == nil || c.Own.Timeout == 0 || 2*w.plan.slowest() <= c.Own.Timeout {
			continue
		}
		for place := range max(w.plan.Servers, w.plan.shards()) {
			w.reg.touches = append(w.reg.touches, touched{kind: "impatient", client: i, server: place, from: time.Now(), to: time.Now().Add(2*w.plan.Length + time.Hour)})
		}
	}
}
