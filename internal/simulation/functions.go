package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"

	"github.com/dlock-go/dlock"
)

// A function under Do or Lead may fail with any error, panic, or end its goroutine. Do returns its error,
// with that of the lease if this ended before, or panics on; the lock is given back in each case.

// functions has functions of a part of the plans end so.
func (g *generator) functions() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 72))}
	if !g.often(50) {
		return
	}
	g.each(func(op *Op) {
		switch {
		case op.Call == "lock" && !op.ByName && len(op.AtOnce) == 0 && !op.Forget && g.often(20):
			op.Call, op.Cause = "do", "" // that of a context is one of all calls under the lease
			op.Function = g.function()
		case op.Call == "do" && g.often(70):
			op.Function = g.function()
		case op.Call == "lead" && g.often(40):
			op.Function = pick(g.draw, "panics", "exits")
			op.Terms = 1 + g.IntN(5)
		}
	})
}

func (g *generator) function() string {
	return pick(g.draw, "fails", "fails", "cause", "held", "loses", "closes", "panics", "panics", "exits")
}

// errThrown is what functions panic with.
var errThrown = errors.New("a function panicked")

// errors of functions that look like those of the library.
var (
	errLikeLost   = fmt.Errorf("a function has failed: %w", dlock.ErrLost)
	errLikeClosed = fmt.Errorf("a function has failed: %w", dlock.ErrClosed)
)

// finish is how the function of op ends, under the context ctx of its lease.
func (op *Op) finish(ctx context.Context, lease *dlock.Lease) error {
	switch op.Function {
	case "fails":
		return errFailed
	case "cause":
		return context.Cause(ctx)
	case "held":
		return &dlock.Error{Op: "trylock", Name: lease.Name(), Kind: dlock.ErrHeld}
	case "loses":
		return errLikeLost
	case "closes":
		return errLikeClosed
	case "panics":
		panic(errThrown)
	case "exits":
		runtime.Goexit()
	}
	return nil
}

// An ending is how a call that runs a function has ended: by its return, by a panic, or with its
// goroutine.
type ending struct {
	err    error
	thrown error
	exited bool
}

// endingOf runs f, in a goroutine of its own if that may end.
func (op *Op) endingOf(l *listener, f func() error) (e ending) {
	if op.Function != "exits" && !l.exits {
		e.run(f)
		return e
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.run(f)
	}()
	<-done
	if e.exited && op.Function != "exits" {
		e.exited, e.thrown = false, errPanicked // it was a hook
	}
	return e
}

func (e *ending) run(f func() error) {
	e.exited = true
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		err, _ := v.(error)
		if err != errPanicked && err != errThrown {
			panic(v)
		}
		e.thrown, e.exited = err, false
	}()
	e.err = f()
	e.exited = false
}

// isHooks reports whether the panic of a hook was in the way.
func (e ending) isHooks() bool { return e.thrown == errPanicked || e.err == errPanicked }

// endsAs checks that a call has ended as its function has, and that its lease is over.
func (r *register) endsAs(c *call, op *Op, lease *dlock.Lease, e ending) {
	over := lease.Err()
	if over == nil {
		r.violate("Do ends as its function", "c%d %s %v: %+v, and its lease is alive", c.client, c.what, c.names, e)
	}
	switch {
	case e.isHooks():
	case op.Function == "panics" && e.thrown != errThrown, op.Function != "panics" && e.thrown != nil, (op.Function == "exits") != e.exited:
		r.violate("Do ends as its function", "c%d %s %v whose function %s: %+v", c.client, c.what, c.names, op.Function, e)
	}
}

// judgeDo checks what Do returns, whose function has returned failed.
func (r *register) judgeDo(c *call, all []*belief, failed, err error) {
	over := kindOf(all[0].lease.Err())
	var own *dlock.Error
	isEnd := errors.As(failed, &own) && failed == error(own) && own.Op == "hold"
	switch {
	case over == dlock.ErrUnlocked && err == failed:
		return
	case over == dlock.ErrUnlocked: // the server may have said so as it was unlocked
		if !r.hasEnd(err, dlock.ErrLost) || r.w.knowsFaults() && !r.mayLose(c, all) && !r.isAnyStrange(c.names, all[0].asked) {
			r.violate("Do ends as its function", "c%d do %v: %v, and its function: %v", c.client, c.names, err, failed)
			return
		}
	case !r.hasEnd(err, over):
		r.violate("Do ends as its function", "c%d do %v: %v, and its lease: %v", c.client, c.names, err, all[0].lease.Err())
		return
	}
	if failed != nil && !isEnd && !errors.Is(err, failed) {
		r.violate("Do ends as its function", "c%d do %v: %v, without what its function returned: %v", c.client, c.names, err, failed)
	}
}

// hasEnd reports whether an error says, before what its causes do, that a lease has ended so.
func (r *register) hasEnd(err, kind error) bool {
	var e *dlock.Error
	return errors.As(err, &e) && e.Op == "unlock" && e.Kind == kind
}
