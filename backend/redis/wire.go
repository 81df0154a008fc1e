package redis

import (
	"context"
	"errors"
	"sync"
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
	client redis.UniversalClient

	mu      sync.Mutex
	queue   []*parcel
	sender  int       // counts senders; the last one takes from the queue
	busy    bool      // it is sending
	started time.Time // when it last took something
}

// A parcel is one command on its way.
type parcel struct {
	cmd  *redis.Cmd
	done chan struct{} // receives when cmd has its reply
}

var (
	parcels = sync.Pool{New: func() any { return &parcel{done: make(chan struct{}, 1)} }}
	timers  = sync.Pool{New: func() any { return time.NewTimer(time.Hour) }}
)

// do executes cmd and returns its reply. It waits no longer than limit.
func (w *wire) do(ctx context.Context, limit time.Duration, cmd *redis.Cmd) (any, error) {
	p := parcels.Get().(*parcel)
	p.cmd = cmd
	w.submit(p)

	t := timers.Get().(*time.Timer)
	t.Reset(limit)
	defer func() { t.Stop(); timers.Put(t) }()
	err := errNoReply
	select {
	case <-p.done:
		return p.result()
	case <-t.C:
		return nil, err
	case <-ctx.Done():
		err = context.Cause(ctx)
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
	cmd := p.cmd
	p.cmd = nil
	parcels.Put(p)
	return cmd.Result()
}

func (w *wire) submit(p *parcel) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = append(w.queue, p)
	if now := time.Now(); !w.busy || now.Sub(w.started) > stalled {
		w.busy, w.started = true, now
		w.sender++
		go w.send(w.sender)
	}
}

// send empties the queue until another sender has taken its place.
func (w *wire) send(self int) {
	for {
		batch := w.take(self)
		if batch == nil {
			return
		}
		w.exec(batch)
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
	return batch
}

// exec has every command end with a reply or an error of its own.
func (w *wire) exec(batch []*parcel) {
	ctx := context.Background()
	if len(batch) == 1 {
		_ = w.client.Process(ctx, batch[0].cmd)
		return
	}
	pipe := w.client.Pipeline()
	for _, p := range batch {
		_ = pipe.Process(ctx, p.cmd)
	}
	_, _ = pipe.Exec(ctx)
}
