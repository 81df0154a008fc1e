package simulation

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dlock-go/dlock"
)

// asks reports whether an op is a question about a lock, or takes it away from others.
func (op *Op) asks() bool { return slices.Contains(questions, op.Call) }

var questions = []string{"inspect", "names", "break", "ping", "examine"}

// ask does an op that takes no lock.
func (a *actor) ask(ctx context.Context, o *owner, op *Op) {
	c := &call{client: a.c.index, what: op.Call, names: a.named(op), ctx: ctx, nested: o != nil, within: o}
	ctx = op.foreign(ctx)
	if op.pings() {
		a.question(c, func() error { return a.ping(ctx, c) })
		return
	}
	var found dlock.Snapshot
	a.question(c, func() (err error) {
		found, err = a.inspect(ctx, c, op.Begins)
		return err
	})
	if op.Call != "break" || len(found.Holders) == 0 {
		return
	}
	if op.Late && a.rest(ctx, op.Hold) != nil {
		return
	}
	a.w.reg.touch(Fault{Kind: "break", Client: -1, For: firstAnswer})
	c = &call{client: a.c.index, what: "break", names: c.names, ctx: c.ctx, nested: c.nested, within: c.within}
	token := found.Holders[0].Token
	if op.Said {
		token = a.w.reg.said(c.names[0], token)
	}
	a.question(c, func() error {
		a.w.reg.breaks(c, token)
		doomed := a.w.reg.dooms(c, token)
		err := a.c.Break(ctx, a.local(c.names[0]), token)
		a.w.reg.broken(c, token, err)
		doomed.ended(a.w.reg, err)
		return err
	})
}

// question has a call registered whose answer must come within the time of a first one.
func (a *actor) question(c *call, f func() error) {
	c.asks = true
	c.bound = time.Now().Add(firstAnswer + a.undoing())
	switch {
	case c.what == "examine":
		c.bound = time.Now().Add(examined + a.undoing())
	case c.what != "names":
	case a.w.plan.Cluster:
		// Who the masters are is a question of its own, and two of them may answer beside one
		// that does not, twice each.
		c.bound = c.bound.Add(firstAnswer + 8*(a.w.plan.Latency+a.w.plan.Jitter))
	case a.w.plan.Backend == "quorum":
		c.bound = c.bound.Add(a.w.plan.oneByOne() + a.w.plan.turning())
		if a.w.plan.Pages > 0 && len(a.w.plan.Faults) > 0 {
			c.bound = time.Time{} // page by page, each of which may be late
		}
	}
	a.w.reg.begin(c)
	err := f()
	a.w.reg.unheard(c, err)
	a.w.reg.returned(c, err)
}

// oneByOne is how much longer Names takes on a quorum: who is silent has a second more, and of
// the others, which are asked one after the other, each that falls silent has two.
func (p *Plan) oneByOne() time.Duration {
	return time.Second + time.Duration(p.spare())*2*time.Second
}

func (a *actor) inspect(ctx context.Context, c *call, begins int) (dlock.Snapshot, error) {
	if c.what == "names" {
		var names []string
		prefix, first := a.w.plan.Clients[a.c.index].Prefix, a.local(c.names[0])
		begin := first[:min(begins, len(first))]
		for name, err := range a.c.Names(ctx, begin) {
			if err != nil {
				return dlock.Snapshot{}, err
			}
			names = append(names, prefix+name)
		}
		a.w.reg.listed(c, prefix+begin, names)
		return dlock.Snapshot{}, nil
	}
	s, err := a.c.Inspect(ctx, a.local(c.names[0]))
	if err == nil {
		a.w.reg.shown(c, s)
	}
	return s, err
}

// answered says whether the error of a question can be true.
func (r *register) answered(c *call, err error) bool {
	return c.what == "break" && errors.Is(err, dlock.ErrNotHeld)
}
