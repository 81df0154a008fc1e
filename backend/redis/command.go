package redis

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	// errNoReply is the end of a wait that had a limit of its own.
	errNoReply = errors.New("no reply in time")

	// errGarbled is a reply that is none.
	errGarbled = errors.New("the server's reply cannot be read")

	// errNonsense is a reply on which the client library panics.
	errNonsense = errors.New("the client library cannot go on")
)

// grace is how long a reply that is under way may still come once its
// caller has gone: to know what has happened saves much.
const grace = 10 * time.Millisecond

// A command is one request of one caller, or a joint of several.
type command struct {
	ctx   context.Context // its caller's, for the values in it
	args  []any
	joins bool       // its script takes several locks
	parts []*command // of a joint: what one script does for all of them
	reply any
	err   error         // of the reply, or why there is none
	left  atomic.Bool   // it was sent, or its caller has gone before that
	ack   time.Duration // how long its replicas have; 0: it needs none
	lacks error         // what became of that
	done  chan struct{} // receives when there is a reply or an error

	closing <-chan struct{} // closed when its caller need not wait; nil: never
}

var (
	commands = sync.Pool{New: func() any { return &command{done: make(chan struct{}, 1)} }}
	timers   = sync.Pool{New: func() any { return time.NewTimer(time.Hour) }}
)

func newCommand(ctx context.Context, args []any) *command {
	c := commands.Get().(*command)
	c.ctx, c.args = ctx, args
	return c
}

// await waits for the reply. With no time left it takes one that is there. The
// caller goes when ctx ends or c.closing does; the command, if it has left, is not
// taken back.
func (c *command) await(ctx context.Context, limit time.Duration) (any, error) {
	if limit <= 0 {
		select {
		case <-c.done:
			return c.result()
		default:
			c.left.Store(true)
			return nil, errNoReply
		}
	}
	t := timers.Get().(*time.Timer)
	t.Reset(limit)
	defer func() { t.Stop(); timers.Put(t) }()
	err := errNoReply
	select {
	case <-c.done:
		return c.result()
	case <-t.C:
		c.left.Store(true)
		return nil, err
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-c.closing:
	}
	if c.left.CompareAndSwap(false, true) {
		return nil, err // it will not be sent
	}
	t.Reset(grace)
	select {
	case <-c.done:
		return c.result()
	case <-t.C:
		return nil, err
	}
}

// result ends the life of a command that is done.
func (c *command) result() (any, error) {
	reply, err, lacks := c.reply, c.err, c.lacks
	c.ctx, c.args, c.closing, c.joins, c.reply, c.err, c.ack, c.lacks = nil, nil, nil, false, nil, nil, 0, nil
	c.left.Store(false)
	commands.Put(c)
	if err == nil {
		err = lacks
	}
	return reply, err
}

// A once is a command that the client library does not repeat, whatever its
// options say. A release that had been answered to nobody would be answered anew,
// that there is nothing to release: only who knows that it is a repetition can
// tell that from a loss.
type once struct{ *redis.Cmd }

func newOnce(ctx context.Context, args []any) once { return once{redis.NewCmd(ctx, args...)} }

// NoRetry implements redis.Cmder.
func (once) NoRetry() bool { return true }

// outcome is the reply, or the error that there is instead. A command that nobody
// has carried has neither: a hook of the client may have kept it.
func (o once) outcome() (any, error) {
	reply, err := o.Result()
	if reply == nil && err == nil {
		err = errGarbled
	}
	return reply, err
}
