package simulation

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// asksServers draws questions about servers, and passwords that change.
func (g *generator) asksServers() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 66))}
	g.rotates()
	g.pings()
}

// pings has clients of a part of the plans ask now and then whether the server is alive, and what is
// wrong with it.
func (g *generator) pings() {
	if !g.often(25) {
		return
	}
	calls := pick(g.draw, []string{"ping"}, []string{"examine"}, []string{"ping", "ping", "examine"})
	if g.plan.Cluster { // to examine one, the client library asks for COMMAND with a mutex held
		calls = []string{"ping"}
	}
	for i := range g.plan.Clients {
		for j, ops := range g.plan.Clients[i].Workers {
			var all []Op
			for _, op := range ops {
				if g.often(15) {
					ask := Op{Pause: g.within(0, g.thinks), Call: pick(g.draw, calls...), Names: []int{0}}
					if g.often(30) {
						ask.Wait = g.within(0, 2*time.Second)
					}
					all = append(all, ask)
				}
				all = append(all, op)
			}
			g.plan.Clients[i].Workers[j] = all
		}
	}
}

// pings reports whether an op asks about the server.
func (op *Op) pings() bool { return op.Call == "ping" || op.Call == "examine" }

// isOver reports whether the time of a call is over: its connection may say so at the same moment.
func (c *call) isOver() bool {
	end, limited := c.ctx.Deadline()
	return c.ctx.Err() != nil || limited && !time.Now().Before(end)
}

// examined is for how long a server may be examined. The documentation says some seconds.
const examined = 10 * time.Second

// examinations is how many round trips it takes to examine a server at most, connections and logins
// among them.
const examinations = 20

// examining is for how long a server that answers may be examined.
func (r *register) examining() time.Duration {
	return min(examined, unanswered+examinations*2*r.w.plan.slowest())
}

// ping does an op that asks about the server, and not about a lock.
func (a *actor) ping(ctx context.Context, c *call) error {
	if c.what == "ping" {
		err := a.c.Ping(ctx)
		a.w.reg.pinged(c, err)
		return err
	}
	var one, over atomic.Bool
	err := a.c.Examine(ctx, func(f dlock.Finding) {
		if !one.CompareAndSwap(false, true) || over.Load() {
			a.violate("what is found is told in order", "c%d: at once with another, or later: %v", c.client, f)
		}
		a.w.reg.found(c, f)
		one.Store(false)
	})
	over.Store(true)
	return err
}

// answers notes that a server has answered a client that has no subscription there.
func (r *register) answers(s *server, client string, master bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := r.w.indexOf(client); i >= 0 && master {
		r.pongs[flight{i, s.index}] = time.Now()
	}
}

// pinged checks that a Ping has no error only if a server has answered it that is a master, or as many
// of a quorum as a hold takes.
func (r *register) pinged(c *call, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil || !r.w.hasServers() {
		return
	}
	n := 0
	for f, at := range r.pongs {
		if f.client == r.w.plan.hostOf(c.client) && !at.Before(c.start) {
			n++
		}
	}
	if n < r.w.plan.need() {
		r.violate("Ping asks the server", "c%d: nil, and %d of %d have answered", c.client, n, r.w.plan.Servers)
	}
}

// found checks that nothing is said to be wrong with a server where nothing has gone wrong.
func (r *register) found(c *call, f dlock.Finding) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.note(c.client, "finds %v", f)
	if f.Level == backend.Fault && !c.isOver() && !r.closing[c.client] && !r.exhausts(c) && !r.findsEnded(c) && !r.touched(c.client, c.start.Add(-lingers), whatever) {
		r.violate("what is found is true", "c%d: %v", c.client, f)
	}
}

// isUnsupported reports whether a backend may not be able to do what it is asked for.
func (r *register) isUnsupported(c *call, err error) bool {
	return !r.w.hasServers() && (c.what == "ping" || c.what == "examine") && errors.Is(err, dlock.ErrUnsupported)
}
