package simulation

import (
	"math/rand/v2"
	"time"

	"github.com/dlock-go/dlock"
)

// Naming is what a client is called, and how it calls locks.
type Naming struct {
	Prefix string  `json:",omitempty"` // of all its names
	Label  string  `json:",omitempty"` // of all its holds that have no other
	ByName *byName `json:",omitempty"` // its locks by name; nil: those of Mutex
}

// A byName is how a client has made its locks by name.
type byName struct {
	MaxHold, MinHold time.Duration `json:",omitempty"`
}

// Uses are what an op makes of what else the library offers.
type Uses struct {
	Begins   int    `json:",omitempty"` // names are asked for that begin with so many bytes of that of the lock
	Label    string `json:",omitempty"` // of the hold; empty: that of the client
	Adapter  bool   `json:",omitempty"` // a reader locks by RLocker, and do is TryDo
	Yields   bool   `json:",omitempty"` // it ends early when somebody else waits
	ByName   bool   `json:",omitempty"` // it is locked and unlocked by name
	Ends     string `json:",omitempty"` // what a function that leads returns when it is to stop
	Terms    int    `json:",omitempty"` // after how many terms that fails; 0: never
	Function string `json:",omitempty"` // how one under Do or Lead ends: fails, cause, held, loses, closes, panics, exits; empty: with nil
	By       int    `json:",omitempty"` // the client, from 1, that makes a call under a lease of another; 0: that of the lease
	Drops    bool   `json:",omitempty"` // nobody refers to the lease that its client was given
	Relock   string `json:",omitempty"` // when a lock by name that was lost is locked anew: before its Unlock, or beside that
}

// labels are such as mean something in an id or a message, and ordinary ones.
var labels = []string{"", "", "host-1/7", "a.b", "+1=x!", "r1:", "ö 日", "\n"}

// used draws what else clients make use of.
func (g *generator) used() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 64))}
	if !g.often(60) {
		return
	}
	if g.often(50) {
		for i := range g.plan.Clients {
			g.plan.Clients[i].Label = pick(g.draw, labels...)
		}
		g.each(func(op *Op) {
			if g.often(30) {
				op.Label = pick(g.draw, labels...)
			}
		})
	}
	adapters, yields := g.often(50), g.often(50)
	g.each(func(op *Op) {
		op.Adapter, op.Yields = adapters && g.often(50), yields && g.often(50)
	})
	if g.often(50) {
		for i := range g.plan.Clients {
			g.names(&g.plan.Clients[i])
		}
	}
}

// names has a client lock by name in a part of its calls.
func (g *generator) names(p *Party) {
	if same := g.predecessor(p); same != nil {
		p.ByName = same.ByName // it has the same calls
		return
	}
	p.ByName = new(byName)
	if g.often(75) {
		p.ByName.MaxHold = g.within(20*time.Millisecond, 2*g.plan.TTL)
	}
	if g.often(60) {
		p.ByName.MinHold = g.within(time.Millisecond, g.plan.TTL)
		if p.ByName.MaxHold > 0 {
			p.ByName.MinHold = min(p.ByName.MinHold, p.ByName.MaxHold)
		}
	}
	for _, ops := range p.Workers {
		for i := range ops {
			op := &ops[i]
			if op.Call != "lock" && op.Call != "trylock" || !g.often(50) {
				continue
			}
			op.ByName, op.NoReentry, op.Forget, op.Twice, op.Downgrade, op.Label = true, true, false, false, false, ""
			op.TTL, op.MaxWait, op.MaxHold, op.MinHold = 0, 0, p.ByName.MaxHold, p.ByName.MinHold
			op.Relock = pick(g.draw, "", "before", "beside")
			if op.MaxHold > 0 && g.often(50) {
				op.Hold = op.MaxHold + g.within(0, g.plan.TTL)
			}
		}
	}
}

// predecessor is the party whose calls p goes on with, if any.
func (g *generator) predecessor(p *Party) *Party {
	for i := range g.plan.Clients {
		if o := &g.plan.Clients[i]; o != p && p.After > 0 && o.After < p.After && &o.Workers[0] == &p.Workers[0] {
			return o
		}
	}
	return nil
}

// options are what a client is made with.
func (p *Party) options(o *dlock.Options) *dlock.Options {
	o.Prefix, o.Label = p.Prefix, p.Label
	return o
}

// locksByName returns those of a client, nil if it has none.
func (p *Party) locksByName(c *dlock.Client) *dlock.NamedLocks {
	if p.ByName == nil {
		return nil
	}
	var o []dlock.Option
	if p.ByName.MaxHold > 0 {
		o = append(o, dlock.WithMaxHold(p.ByName.MaxHold))
	}
	if p.ByName.MinHold > 0 {
		o = append(o, dlock.WithMinHold(p.ByName.MinHold))
	}
	return c.NamedLocks(o...)
}
