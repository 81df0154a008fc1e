package simulation

import (
	"math/rand/v2"
	"slices"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// A pool is how a program has its own client keep connections; what is 0 is as usual.
type pool struct {
	Lifetime time.Duration `json:",omitempty"` // after which a connection ends
	Idle     time.Duration `json:",omitempty"` // unused
	Least    int           `json:",omitempty"` // how many there are, used or not
	Wait     time.Duration `json:",omitempty"` // for one that is free
	Heeds    bool          `json:",omitempty"` // reads and writes end with their contexts
}

// pools draws them for clients of programs, and some that are closed before the client of the library
// that uses them, as by defers in the wrong order.
func (g *generator) pools() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 177))}
	for i := range g.plan.Clients {
		c := &g.plan.Clients[i]
		if c.Own == nil {
			continue
		}
		if g.often(60) {
			c.Own.Pool = &pool{
				Lifetime: pick(g.draw, 0, 2*time.Second, 10*time.Second), Idle: pick(g.draw, 0, time.Second, 5*time.Second),
				Least: pick(g.draw, 0, 0, 2), Wait: pick(g.draw, 0, 0, 200*time.Millisecond), Heeds: g.often(50),
			}
			c.Own.Pool.lasts(g.plan.Length)
		}
		c.Own.First = len(g.plan.Faults) > 0 && c.ClosedIn == "" && !g.plan.lodges() && g.often(15)
	}
}

// lasts has connections live longer where a plan lasts for hours: to make one costs as much as all that is
// asked on it.
func (p *pool) lasts(length time.Duration) {
	by := max(1, length/time.Hour)
	p.Lifetime *= by
	p.Idle *= by
}

// lodges reports whether clients of the library share one of a program.
func (p *Plan) lodges() bool {
	return slices.ContainsFunc(p.Clients, func(c Party) bool { return c.Lodges > 0 })
}

// asPooled has the options of a client have it keep connections so.
func (p *pool) asPooled(o *goredis.Options) {
	if p == nil {
		return
	}
	o.ConnMaxLifetime, o.ConnMaxIdleTime, o.MinIdleConns = p.Lifetime, p.Idle, p.Least
	o.PoolTimeout, o.ContextTimeoutEnabled = p.Wait, p.Heeds
}

// endsConnections reports whether a client may need a new connection though nothing goes wrong at a server:
// one has its age, was idle for that, or forgotten, or was given up as an answer was late.
func (p *Plan) endsConnections(client int) bool {
	own := p.Clients[client].Own
	switch {
	case p.Forgets > 0, p.Ends > 0, longestTTL(p.TTL)/3 > maxIdle:
		return true
	case own == nil:
		return false
	}
	return own.Timeout > 0 || own.Pool != nil && own.Pool.Lifetime+own.Pool.Idle > 0
}

// isFirst reports whether the program closes its client before that of the library.
func (p *Plan) isFirst(client int) bool {
	own := p.Clients[client].Own
	return own != nil && own.First
}

// closesFirst has it do so: the servers keep what the client has for as long as if it had died.
func (w *world) closesFirst(c *client) {
	if !w.plan.isFirst(c.index) {
		return
	}
	w.reg.touch(Fault{Kind: "die", Client: c.index})
	for _, g := range c.shared {
		_ = g.Close()
	}
}
