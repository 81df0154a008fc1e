package simulation

import (
	"context"
	"math/rand/v2"
	"time"
)

// A program may make a client for each thing that it does, as a handler of requests or a command line tool does:
// it opens one, locks and unlocks once, and closes it. Fleeting says how each is made: by Open, with connections
// of its own, or with those of the one before.

// fleets adds clients of that sort to a part of the plans, with hundreds of calls in all.
func (g *generator) fleets() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 225))}
	p := g.plan
	if p.isLonger() || p.Fresh || p.Length > 4*time.Minute || !g.often(3) {
		return
	}
	how := []string{"own", "shared"}
	if p.Backend != "memory" && !p.Shelves && p.Need == 0 && p.Servers%2 == 1 {
		how = append(how, "open", "open")
	}
	calls := pick(g.draw, []string{"lock"}, []string{"trylock"}, []string{"lock", "trylock", "rlock", "tryrlock"})
	for range 1 + g.IntN(3) {
		n := 60 + g.IntN(100)
		var ops []Op
		for range n {
			op := Op{Pause: g.within(0, 2*p.Length/time.Duration(n)), Call: pick(g.draw, calls...), Names: []int{g.IntN(p.Names)}, Unlock: "live"}
			op.Hold = pick(g.draw, 0, g.within(0, 50*time.Millisecond))
			if g.often(30) {
				op.Wait, op.Cancel = g.within(0, pick(g.draw, 20*p.Latency, p.TTL)), g.often(50)
			}
			ops = append(ops, op)
		}
		p.Clients = append(p.Clients, Party{Fleeting: pick(g.draw, how...), Workers: [][]Op{ops}})
	}
}

// fleet does each op with a client of its own.
func (w *world) fleet(c *client, how string, ops []Op) {
	for i := range ops {
		op := ops[i]
		if sleep(w.over, op.Pause) != nil || c.dead.Load() || !w.opensFleeting(c, how) {
			break
		}
		op.Pause = 0
		a := &actor{w, c, new(group)}
		a.do(context.Background(), nil, &op)
		a.asides.wait()
		w.closesFleeting(c, how)
	}
	if c.Client == nil { // there was no time for any
		_ = w.connect(c)
	}
}

// opensFleeting has a client begin that is for one op.
func (w *world) opensFleeting(c *client, how string) bool {
	r := w.reg
	r.mu.Lock()
	delete(r.served, c.index) // it knows the servers no better than a new one
	r.mu.Unlock()
	if how == "open" {
		return w.opens(c, &opening{})
	}
	if err := w.connect(c); err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.violate("the world opens", "%v", err)
		return false
	}
	return true
}

// closesFleeting closes a client that was for one op. Nothing is wrong with that where nothing else is.
func (w *world) closesFleeting(c *client, how string) {
	r, began := w.reg, time.Now()
	bound := min(max(longestTTL(w.plan.TTL), time.Second), 5*time.Second) + w.leavesBehind(c.index)
	err := c.Close(context.Background())
	c.hooks.agrees()
	if how == "own" {
		w.leaves(c)
		c.shared = nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.coverage[fleetingClients]++
	if r.dead[c.index] || r.stuttered(began) || r.stood(c.index, began) {
		return
	}
	took := time.Since(began)
	if took > bound+100*time.Millisecond {
		r.violate("every call ends", "c%d close took %v, more than %v", c.index, took, bound)
	}
	if (err != nil || took > r.closesWithin(new(closing))) && !r.isAstray(c.index, w.names()) && !r.touched(c.index, began.Add(-2*longestTTL(w.plan.TTL)-lingers), whatever) {
		r.violate("Close does what it says", "c%d: it was for one call, nothing is wrong, and after %v: %v", c.index, took, err)
	}
}

// fleetingClients is what counts them.
const fleetingClients = "a client for one call"
