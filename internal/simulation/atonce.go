package simulation

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/dlock-go/dlock"
)

// Any goroutine may use a lease: several may unlock it, downgrade it, ask for its end or close the
// client at the same moment. Each of them is told of the one end that there is.

// A Beside is a call on a lease beside others.
type Beside struct {
	Call  string        // unlock, outer (unlocks that under which it was made), downgrade, look, close
	After time.Duration `json:",omitempty"`
}

// crowded draws leases that end while other goroutines use them.
func (g *generator) crowded() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 51))}
	if !g.often(25) {
		return
	}
	closes := g.often(20)
	var all func(ops []Op, depth int)
	all = func(ops []Op, depth int) {
		for i := range ops {
			op := &ops[i]
			all(op.Inside, depth+1)
			if op.asks() || op.Call == "do" || op.Call == "lead" || op.ByName || op.Forget || !g.often(25) {
				continue
			}
			g.atOnce(op, depth)
			if closes && g.often(20) {
				op.AtOnce = append(op.AtOnce, Beside{"close", g.soon()})
				closes = false
			}
		}
	}
	for _, c := range g.plan.Clients {
		for _, ops := range c.Workers {
			all(ops, 0)
		}
	}
}

// atOnce has op end beside other calls on its lease.
func (g *generator) atOnce(op *Op, depth int) {
	op.AtOnce = []Beside{{"unlock", g.soon()}}
	calls := []string{"unlock", "unlock", "look"}
	if op.Call == "lock" || op.Call == "trylock" {
		calls = append(calls, "downgrade", "downgrade")
		op.Downgrade = op.Downgrade && g.often(20)
	}
	if depth > 0 {
		calls = append(calls, "outer")
	}
	for range 1 + g.IntN(3) {
		op.AtOnce = append(op.AtOnce, Beside{pick(g.draw, calls...), g.soon()})
	}
}

// soon is at the same moment as others, or within two round trips.
func (g *generator) soon() time.Duration {
	return pick(g.draw, 0, g.within(0, 4*g.plan.Latency))
}

// endsAmong unlocks a lease, with what comes beside.
func (a *actor) endsAmong(ctx context.Context, lease *dlock.Lease, o *owner, op *Op) {
	if len(op.AtOnce) == 0 {
		a.unlock(lease, o.beliefs, op)
		return
	}
	var calls group
	for _, b := range op.AtOnce {
		calls.run(func() {
			_ = sleep(context.Background(), b.After)
			a.beside(ctx, lease, o, op, b.Call)
		})
	}
	calls.wait()
	err := lease.Unlock(context.Background())
	if over := lease.Err(); err == nil || kindOf(err) != kindOf(over) {
		a.w.reg.mu.Lock()
		defer a.w.reg.mu.Unlock()
		a.w.reg.violate("an end is an end", "c%d %v: %v, and Unlock says %v", a.c.index, a.named(op), over, err)
	}
}

func (a *actor) beside(ctx context.Context, lease *dlock.Lease, o *owner, op *Op, call string) {
	switch call {
	case "unlock":
		a.unlock(lease, o.beliefs, op)
	case "outer":
		if up := o.outer; up != nil {
			(&actor{a.w, up.beliefs[0].owner, a.asides}).unlock(up.beliefs[0].lease, up.beliefs, &Op{Names: up.indexes(a.w.plan), TTL: up.beliefs[0].ttl, Early: true})
		}
	case "downgrade":
		a.downgrade(ctx, lease, o, op)
	case "look":
		for range looks {
			a.looks(lease, op)
			_ = sleep(context.Background(), a.w.plan.nearest()/2)
		}
	case "close":
		a.w.closeClient(a.c, op.Unlock)
	}
}

// looks is how often a lease is looked at beside what ends it.
const looks = 10

// indexes are the names of the leases of an owner, by their number.
func (o *owner) indexes(p *Plan) (all []int) {
	for _, b := range o.beliefs {
		for n := range p.Names {
			if p.fullName(b.client, n) == b.name {
				all = append(all, n)
				break
			}
		}
	}
	return all
}

func kindOf(err error) error {
	var e *dlock.Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return err
}

// looks checks that all that a lease says of its end agrees, at whatever moment that comes.
func (a *actor) looks(lease *dlock.Lease, op *Op) {
	before := lease.Err()
	done := false
	select {
	case <-lease.Done():
		done = true
	default:
	}
	ctx := lease.Context(context.Background())
	over, cause := ctx.Err() != nil, context.Cause(ctx)
	until := lease.Until()
	after := lease.Err()
	r := a.w.reg
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case before != nil && (!done || !over || !until.IsZero()):
		r.violate("an end is an end", "c%d %v: %v, and done %v, context over %v, until %v", a.c.index, a.named(op), before, done, over, until)
	case after == nil && (done || over || until.IsZero()):
		r.violate("an end is an end", "c%d %v: alive, and done %v, context over %v, until %v", a.c.index, a.named(op), done, over, until)
	case before != nil && kindOf(before) != kindOf(after), over && kindOf(cause) != kindOf(after):
		r.violate("an end is an end", "c%d %v: %v, then %v, and its context %v", a.c.index, a.named(op), before, after, cause)
	}
}

// beginsEnd notes that an Unlock begins.
func (r *register) beginsEnd(all []*belief) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all[0].unlocks++
}

// endsOnce checks, when none is under way, that of several calls of Unlock one alone has ended the
// lease: the others say by whom it was.
func (r *register) endsOnce(c *call, all []*belief, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := all[0]
	b.unlocks--
	b.ends = append(b.ends, kindOf(err))
	if b.unlocks > 0 {
		return
	}
	over := kindOf(b.lease.Err())
	first := 0
	for _, e := range b.ends {
		if e != over {
			first++
		}
	}
	if over == nil || over == dlock.ErrUnlocked && first != 1 || over != dlock.ErrUnlocked && first != 0 {
		r.violate("an end is an end", "c%d %v: %v, and calls of Unlock say %v", c.client, c.names, b.lease.Err(), b.ends)
	}
}

// closed checks that all leases of a client that was closed are over, and that the server has no hold
// of it if Close says that all was confirmed, also where an Unlock was under way.
func (r *register) closed(client int, err error) {
	r.keepsNothing(client, err)
	for _, b := range r.beliefs {
		if b.client == client && !r.dead[client] && b.lease.Err() == nil {
			r.violate("an end is an end", "%v is alive after Close", b)
		}
	}
}

func (r *register) keepsNothing(client int, err error) {
	then := time.Now().Add(-longestTTL(r.w.plan.TTL) - lingers)
	if err != nil || r.dead[client] || !r.w.hasServers() || r.w.plan.Backend == "quorum" || r.stuttered(then) || r.touched(client, then, whatever) {
		return
	}
	for _, name := range r.w.names() {
		s := r.w.keeper(name)
		for _, id := range r.lock(name).last[s.index].asOf(s.clock().UnixMilli()).holders() {
			if s.owner(id) == r.w.label(client) && id[len(id)-1] != '!' {
				r.violate("nothing is left behind", "c%d was closed, and s%d has %s of it on %s", client, s.index, id[:8], name)
			}
		}
	}
}
