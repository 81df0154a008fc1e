package simulation

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

// A context of a program's own type need not be as those of the standard library: it ends with an error of its
// own, says another deadline than the time at which it ends, or never ends though that which it was made from does.

// A ForeignContext says of what type the contexts of an op are.
type ForeignContext struct {
	Type   string        // own, error, after, late, early, silent, endless
	Beyond time.Duration `json:",omitempty"` // how long after its deadline an early one ends
}

// errForeign is what contexts of some types end with.
var errForeign = errors.New("the job was aborted")

// foreignContexts draws them for a part of the calls of a part of the plans. One that never ends is given to what
// ends by itself.
func (g *generator) foreignContexts() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 220))}
	if !g.often(8) {
		return
	}
	g.each(func(op *Op) {
		if !g.often(50) {
			return
		}
		types := []string{"own", "after", "late"}
		if op.Call != "lead" {
			types = append(types, "error")
		}
		alone := op.Call != "lead" && !(op.Call == "do" && len(op.Inside) > 0) // what is done inside has its deadline, and no other
		if alone {
			types = append(types, "early")
		}
		waits := op.MaxWait == 0 && (op.Call == "lock" || op.Call == "rlock" || op.Call == "multi" || op.Call == "do" && !op.Adapter)
		if alone && !waits && op.Wait >= 0 && !op.asks() {
			types = append(types, "silent", "endless")
		}
		f := &ForeignContext{Type: pick(g.draw, types...)}
		switch f.Type {
		case "early":
			if op.Cancel = false; op.Wait <= 0 {
				op.Wait = g.within(1, g.plan.TTL)
			}
			f.Beyond = pick(g.draw, g.within(0, 100*time.Millisecond), g.within(0, g.plan.TTL))
		case "silent":
			op.Cancel = false
		case "endless":
			op.Cancel, op.Wait = false, 0
		}
		op.Foreign = f
	})
}

// foreign is what a call is given in place of ctx.
func (op *Op) foreign(ctx context.Context) context.Context {
	switch f := op.Foreign; {
	case f == nil:
		return ctx
	case f.Type == "endless":
		return context.WithoutCancel(ctx)
	case f.Type == "silent":
		return silent{ctx}
	case f.Type == "late":
		if at, limited := ctx.Deadline(); limited {
			return belated{ctx, at.Add(time.Hour)}
		}
		return ctx
	default:
		s := newForeign(ctx, f)
		if f.Type == "after" {
			return tellingForeign{s}
		}
		return s
	}
}

// parent is from what the context of a lease is made.
func (op *Op) parent(ctx context.Context) context.Context {
	if f := op.Foreign; f != nil && f.Beyond == 0 && f.Type != "silent" && f.Type != "endless" {
		return op.foreign(ctx)
	}
	return ctx
}

// beyond is for how long after the deadline of its context a call may go on. It may wait no shorter by
// WithMaxWait: the standard library takes the deadline of a context for its end.
func (op *Op) beyond() time.Duration {
	if op.Foreign == nil {
		return 0
	}
	return op.Foreign.Beyond
}

// neverEnds reports whether the contexts of an op do not.
func (op *Op) neverEnds() bool {
	return op.Foreign != nil && (op.Foreign.Type == "silent" || op.Foreign.Type == "endless")
}

// A silent context has a deadline, and nothing ends then.
type silent struct{ context.Context }

func (silent) Done() <-chan struct{} { return nil }
func (silent) Err() error            { return nil }

// A belated context ends long before the deadline that it has.
type belated struct {
	context.Context
	deadline time.Time
}

func (c belated) Deadline() (time.Time, bool) { return c.deadline, true }

// A foreign context ends when another one does, or later.
type foreign struct {
	context.Context // its values and its deadline
	over            context.Context
	how             ForeignContext

	mu  sync.Mutex
	err error
}

func newForeign(ctx context.Context, how *ForeignContext) *foreign {
	over, end := context.WithCancel(context.Background())
	c := &foreign{Context: ctx, over: over, how: *how}
	ends := func() {
		c.mu.Lock()
		if c.err = ctx.Err(); how.Type == "error" {
			c.err = errForeign
		}
		c.mu.Unlock()
		end()
	}
	switch {
	case how.Beyond > 0:
		context.AfterFunc(ctx, func() { time.AfterFunc(how.Beyond, ends) })
	case ctx.Err() != nil:
		ends()
	default:
		context.AfterFunc(ctx, ends)
	}
	return c
}

func (c *foreign) Done() <-chan struct{} { return c.over.Done() }

func (c *foreign) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// An tellingForeign is one that knows who is to be told of its end.
type tellingForeign struct{ *foreign }

// AfterFunc is what the standard library asks for.
func (c tellingForeign) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(c.over, f) }
