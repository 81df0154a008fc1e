package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// A program may end a context with a failure from anywhere as its cause: the loss of another lock, a
// dial to another server. No call may take that for the word of the server that it has asked.

// causes are what contexts of a program end with.
var causes = map[string]error{
	"lost":   dlock.ErrLost,
	"task":   fmt.Errorf("a task has failed: %w", dlock.ErrLost),
	"closed": dlock.ErrClosed,
	"held":   dlock.ErrHeld,
	"denied": dlock.ErrAuth,
	"dial":   &net.OpError{Op: "dial", Err: errRefused},
}

// gives has contexts of a part of the plans end with such causes, and downgrades have contexts that end
// before they are answered.
func (g *generator) gives() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 69))}
	if !g.often(30) {
		return
	}
	g.each(func(op *Op) {
		switch op.Call {
		case "lock", "trylock", "rlock", "tryrlock", "multi", "trymulti":
		default:
			return
		}
		if g.often(60) {
			op.Cause = pick(g.draw, "lost", "task", "closed", "held", "denied", "dial")
		}
		if op.Downgrade && g.often(50) {
			op.Brief = g.within(1, 10*g.plan.Latency)
		}
	})
}

// withoutCause is the error of a call without the cause that op has given its context: rules go by
// what the library says.
func (op *Op) withoutCause(ctx context.Context, err error) error {
	var e *dlock.Error
	if op.Cause == "" || !errors.As(err, &e) || backend.OwnersCause(err) != causes[op.Cause] {
		return err
	}
	return &dlock.Error{Op: e.Op, Name: e.Name, Kind: e.Kind, Err: ctx.Err()}
}

// limited is ctx for d, and ends with the cause that op gives.
func (op *Op) limited(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, causes[op.Cause])
}

// downgradeBriefly downgrades a lease under a context that may end first, and once more if it has.
func (a *actor) downgradeBriefly(ctx context.Context, lease *dlock.Lease, o *owner, op *Op) {
	brief, cancel := op.limited(ctx, op.Brief)
	defer cancel()
	if a.downgradeOnce(brief, lease, o, op) != nil && ctx.Err() == nil {
		_ = a.downgradeOnce(ctx, lease, o, op)
	}
}
