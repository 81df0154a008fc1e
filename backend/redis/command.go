package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
)

var (
	// errNoReply is the end of a wait that had a limit of its own.
	errNoReply = errors.New("no reply in time")

	// errGarbled is a reply that is none.
	errGarbled = errors.New("the server's reply cannot be read")

	// errNonsense is a reply on which the client library panics.
	errNonsense = errors.New("the client library cannot go on")
)

// A kind of command says what its caller expects.
type kind uint8

const (
	ordinary kind = iota
	durable       // the caller counts on what it does
	joinable      // its script takes several locks
	reading       // its script only reads
)

// firstKey is where a command that runs a script has its first key.
const firstKey = 3

// grace is how long a reply that is under way may still come once its
// caller has gone: to know what has happened saves much.
const grace = 10 * time.Millisecond

// A command is what one caller asks the server.
type command struct {
	ctx   context.Context // its caller's, for the values in it
	args  []any
	joins bool          // its script takes several locks
	ack   time.Duration // how long its replicas have to acknowledge it; 0: it needs none
	left  atomic.Bool   // it was sent, or its caller has gone before that
	done  chan struct{} // receives when there is a reply or an error
	reply any
	err   error // beside a reply: its replicas have not acknowledged it
}

func newCommand(ctx context.Context, args []any) *command {
	return &command{ctx: ctx, args: args, done: make(chan struct{}, 1)}
}

// await waits for the reply until limit has passed or ctx ends. A command that has left
// is not taken back, and its reply may be about to come.
func (c *command) await(ctx context.Context, limit time.Duration) (any, error) {
	t := time.NewTimer(limit)
	defer t.Stop()
	err := errNoReply
	select {
	case <-c.done:
		return c.reply, c.err
	case <-t.C:
	case <-ctx.Done():
		err = backend.Cause(ctx)
	}
	if c.left.CompareAndSwap(false, true) {
		return nil, &unsentError{err}
	}
	t.Reset(grace)
	select {
	case <-c.done:
		return c.reply, c.err
	case <-t.C:
		return nil, err
	}
}

// A request is what is sent for one command, or for several that run the same script,
// each for a lock of its own: a script costs the server as much as several of the
// commands in it. Each command has its own part of the reply.
type request struct {
	args    []any
	members []*command
	reply   any
	err     error
}

// merge makes requests of commands, as few as there can be.
func merge(all []*command) []*request {
	out := make([]*request, 0, len(all))
	for i, c := range all {
		shared := -1
		if c.joins {
			shared = slices.IndexFunc(out, func(r *request) bool { return r.fits(c) })
		}
		if shared < 0 {
			out = append(out, &request{args: c.args, members: all[i : i+1 : i+1]})
			continue
		}
		out[shared].members = append(out[shared].members, c)
	}
	for _, r := range out {
		r.args = r.merged()
	}
	return out
}

// fits reports whether c can share r.
func (r *request) fits(c *command) bool {
	first := r.members[0]
	return first.joins && len(r.members) < maxBatch && len(c.args) == len(first.args) &&
		c.args[0] == first.args[0] && c.args[1] == first.args[1]
}

// merged is the command that does what all members do: with the keys of each, then the
// arguments of each.
func (r *request) merged() []any {
	n := len(r.members)
	if n == 1 {
		return r.args
	}
	keys := r.args[firstKey-1].(int)
	all := append(make([]any, 0, firstKey+n*(len(r.args)-firstKey)), r.args[0], r.args[1], n*keys)
	for _, c := range r.members {
		all = append(all, c.args[firstKey:firstKey+keys]...)
	}
	for _, c := range r.members {
		all = append(all, c.args[firstKey+keys:]...)
	}
	return all
}

// deliver gives each member its part of the reply, or the error.
func (r *request) deliver() {
	replies, _ := r.reply.([]any)
	for i, c := range r.members {
		switch {
		case r.err != nil || len(r.members) == 1:
			c.reply, c.err = r.reply, r.err
		case len(replies) != len(r.members):
			c.err = errGarbled
		default:
			c.reply = replies[i]
		}
	}
}

// process has the client library send requests, and reports whether all were
// answered.
func process(ctx context.Context, client redis.UniversalClient, batch []*request) (answered bool) {
	cmds := make([]unrepeated, len(batch))
	for i, r := range batch {
		cmds[i] = unrepeated{redis.NewCmd(ctx, r.args...)}
		// Without it a cluster client that has to find the node by itself asks some other
		// node about the command first, which may hang, and whoever comes next waits for
		// that behind a mutex.
		cmds[i].SetStepCount(1)
	}
	err := guard(func() error {
		if len(cmds) == 1 {
			return client.Process(ctx, cmds[0])
		}
		pipe := client.Pipeline()
		for _, cmd := range cmds {
			_ = pipe.Process(ctx, cmd)
		}
		_, err := pipe.Exec(ctx)
		return err
	})
	if err != nil && !slices.ContainsFunc(cmds, unrepeated.hasOutcome) {
		// No connection was to be had. If that is the word of the server, as at a login that it
		// denies, the client library does not tell it to the commands of a pipeline.
		for _, c := range cmds {
			c.SetErr(err)
		}
	}
	answered = true
	for i, r := range batch {
		r.reply, r.err = cmds[i].outcome()
		if _, isReply := replyOf(r.err); r.err != nil && !isReply {
			answered = false
			if errors.Is(err, errNonsense) {
				r.err = err
			}
		}
	}
	return answered
}

// guard runs f in the client library, which panics on some replies that no server
// gives. That ends the connection, and need not end the process.
func guard(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", errNonsense, r)
		}
	}()
	return f()
}

// An unrepeated command is one that the client library does not repeat, whatever its
// options say. A repeated release finds nothing to release: only who knows that it
// is a repetition can tell that from a loss.
type unrepeated struct{ *redis.Cmd }

// NoRetry implements redis.Cmder.
func (unrepeated) NoRetry() bool { return true }

func (u unrepeated) hasOutcome() bool { return u.Val() != nil || u.Err() != nil }

// outcome is the reply, or the error that there is instead. A command that nobody
// has carried has neither: a hook of the client may have kept it.
func (u unrepeated) outcome() (any, error) {
	reply, err := u.Result()
	if reply == nil && err == nil {
		err = errGarbled
	}
	return reply, err
}
