package redis

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// errNoReply is the end of a wait that had a limit of its own.
var errNoReply = errors.New("no reply in time")

const (
	// depth bounds the commands of one pipeline.
	depth = 256

	// stalled is how long a pipeline may take before others go past it: a
	// connection on which nothing comes back must not hold up the rest.
	stalled = 50 * time.Millisecond

	// grace is how long a reply that is under way may still come once its
	// caller has gone: to know what has happened saves much.
	grace = 10 * time.Millisecond
)

// A wire sends commands. Those that arrive while others are under way leave
// together as one pipeline; one that finds the wire idle leaves at once.
//
// The caller's context bounds the caller's wait and nothing else: a command
// that was sent is never taken back, and others may share its pipeline. That,
// and the way past a connection that stalls, is what the automatic pipelines
// of the client library do not offer.
type wire struct {
	client   redis.UniversalClient
	inline   bool // the client keeps to the deadline of a context
	replicas int  // how many must acknowledge what is durable

	mu      sync.Mutex
	queue   []*parcel
	sender  int       // counts senders; the last one takes from the queue
	busy    bool      // it is sending
	started time.Time // when it last took something
}

// A parcel is one command on its way.
type parcel struct {
	cmd  *redis.Cmd
	left atomic.Bool   // it was sent, or its caller has gone before that
	ack  time.Duration // how long its replicas have; 0: it needs none
	err  error         // what became of that
	done chan struct{} // receives when cmd has its reply
}

var (
	parcels = sync.Pool{New: func() any { return &parcel{done: make(chan struct{}, 1)} }}
	timers  = sync.Pool{New: func() any { return time.NewTimer(time.Hour) }}
)

func newWire(c redis.UniversalClient, replicas int) *wire {
	single, ok := c.(*redis.Client)
	return &wire{client: c, inline: ok && single.Options().ContextTimeoutEnabled, replicas: replicas}
}

// do implements carrier.
func (w *wire) do(ctx context.Context, limit time.Duration, args []any, durable bool) (any, error) {
	durable = durable && w.replicas > 0
	if ctx.Done() == nil && w.inline && !durable {
		if self, ok := w.tryEnter(); ok {
			defer w.leave(self)
			cmd := redis.NewCmd(ctx, args...)
			_ = w.client.Process(deadline{ctx, time.Now().Add(limit)}, cmd)
			return cmd.Result()
		}
	}
	return w.post(limit, args, durable).await(ctx, limit)
}

// post sends a command whose reply is awaited later, for no longer than limit.
func (w *wire) post(limit time.Duration, args []any, durable bool) *parcel {
	p := parcels.Get().(*parcel)
	p.cmd = redis.NewCmd(context.Background(), args...)
	if durable && w.replicas > 0 {
		p.ack = limit / 2
	}
	w.submit(p)
	return p
}

// A deadline is a context that does not end at its deadline, for whoever reads
// that. It costs no timer.
type deadline struct {
	context.Context
	at time.Time
}

func (d deadline) Deadline() (time.Time, bool) { return d.at, true }

// await waits for the reply. With no time left it takes one that is there.
func (p *parcel) await(ctx context.Context, limit time.Duration) (any, error) {
	if limit <= 0 {
		select {
		case <-p.done:
			return p.result()
		default:
			p.left.Store(true)
			return nil, errNoReply
		}
	}
	t := timers.Get().(*time.Timer)
	t.Reset(limit)
	defer func() { t.Stop(); timers.Put(t) }()
	err := errNoReply
	select {
	case <-p.done:
		return p.result()
	case <-t.C:
		p.left.Store(true)
		return nil, err
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if p.left.CompareAndSwap(false, true) {
		return nil, err // it will not be sent
	}
	t.Reset(grace)
	select {
	case <-p.done:
		return p.result()
	case <-t.C:
		return nil, err
	}
}

// result ends the life of a parcel that is done.
func (p *parcel) result() (any, error) {
	cmd, unacknowledged := p.cmd, p.err
	p.cmd, p.ack, p.err = nil, 0, nil
	p.left.Store(false)
	parcels.Put(p)
	reply, err := cmd.Result()
	if err == nil {
		err = unacknowledged
	}
	return reply, err
}

// tryEnter takes the idle wire for a caller that sends by itself: nobody can
// call it back, so it must not be able to go away.
func (w *wire) tryEnter() (self int, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy {
		return 0, false
	}
	return w.begin(time.Now()), true
}

// begin makes a new sender the one that takes from the queue. It is called
// with w.mu held.
func (w *wire) begin(now time.Time) (self int) {
	w.busy, w.started = true, now
	w.sender++
	return w.sender
}

// leave has what has arrived meanwhile sent, if nobody else does.
func (w *wire) leave(self int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.sender != self:
	case len(w.queue) == 0:
		w.busy = false
	default:
		go w.send(w.begin(time.Now()))
	}
}

func (w *wire) submit(p *parcel) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = append(w.queue, p)
	if now := time.Now(); !w.busy || now.Sub(w.started) > stalled {
		go w.send(w.begin(now))
	}
}

// send empties the queue until another sender has taken its place. It lets
// everybody run first whom the last replies have woken: their next commands
// then leave together.
func (w *wire) send(self int) {
	for {
		runtime.Gosched()
		batch := w.take(self)
		if batch == nil {
			return
		}
		if len(batch) > 0 {
			w.exec(batch)
		}
		for _, p := range batch {
			p.done <- struct{}{}
		}
	}
}

func (w *wire) take(self int) []*parcel {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sender != self {
		return nil
	}
	if len(w.queue) == 0 {
		w.busy = false
		return nil
	}
	n := min(len(w.queue), depth)
	batch := w.queue[:n:n]
	w.queue = w.queue[n:]
	if len(w.queue) == 0 {
		w.queue = nil
	}
	w.started = time.Now()
	// What nobody waits for any more stays: a server that is behind would only
	// fall back further.
	return slices.DeleteFunc(batch, func(p *parcel) bool { return !p.left.CompareAndSwap(false, true) })
}

// exec has every command end with a reply or an error of its own.
func (w *wire) exec(batch []*parcel) {
	ctx := context.Background()
	ack := w.acknowledgement(batch)
	if len(batch) == 1 && ack == nil {
		_ = w.client.Process(ctx, batch[0].cmd)
		return
	}
	pipe := w.client.Pipeline()
	for _, p := range batch {
		_ = pipe.Process(ctx, p.cmd)
	}
	if ack != nil {
		_ = pipe.Process(ctx, ack)
	}
	_, _ = pipe.Exec(ctx)
	if ack != nil {
		w.acknowledge(batch, ack)
	}
}
