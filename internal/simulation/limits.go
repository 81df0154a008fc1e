package simulation

import (
	"math/rand/v2"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// Habits are what else a program sets for its own client; what is 0 is as usual.
type habits struct {
	Active   int           `json:",omitempty"` // how many connections there are at most: who wants one more is refused at once
	Bursts   int           `json:",omitempty"` // how many there are for pipelines beside; less: none
	Oldest   bool          `json:",omitempty"` // the connection that was used longest ago is used next
	Patience time.Duration `json:",omitempty"` // how long it waits for an answer
}

// limited draws them for clients of programs, in a part of the plans for clients that had none. One that has
// few connections does not wait long for each.
func (g *generator) limited() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 210))}
	p := g.plan
	if p.Backend == "memory" || p.Shelves || len(p.Durable) > 0 {
		return
	}
	more := g.often(10)
	for i := range p.Clients {
		c := &p.Clients[i]
		if c.Own == nil && more && c.Opens == nil && !c.Asks && c.Lodges == 0 && !p.isShared(i) {
			c.Own = &own{}
		}
		if c.Own == nil || c.Lodges > 0 || !g.often(40) {
			continue
		}
		made := habits{Active: pick(g.draw, 0, 0, 1, 2, 3), Bursts: pick(g.draw, 0, -1, -1, 1), Oldest: g.often(50)}
		if c.Own.Timeout == 0 && c.Own.PoolSize == 0 && made.Active == 0 && made.Bursts <= 0 && !p.Sentinels {
			made.Patience = pick(g.draw, 0, 10*time.Second, 30*time.Second)
		}
		if made.Active > 0 && c.Own.Pool != nil {
			c.Own.Pool.Least = 0
		}
		c.Own.Limits = &made
	}
}

// asLimited has the options of a client have them.
func (l *habits) asLimited(o *goredis.Options) {
	if l == nil {
		return
	}
	o.MaxActiveConns, o.PipelinePoolSize, o.PoolFIFO = l.Active, l.Bursts, l.Oldest
	if l.Patience > 0 {
		o.ReadTimeout = l.Patience
	}
}

// exhausts reports whether a call may find no connection left at once. One that asks for a lock tries again.
func (r *register) exhausts(c *call) bool {
	own := r.w.plan.Clients[r.w.plan.hostOf(c.client)].Own
	return (c.what == "ping" || c.what == "names" || c.what == "examine") && own != nil && own.Limits != nil && own.Limits.Active > 0
}
