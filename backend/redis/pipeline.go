package redis

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
)

const (
	// depth bounds the commands of one pipeline.
	depth = 256

	// At most width pipelines are under way whose replies are in time, and at most spare
	// times as many whose replies are late.
	width, spare = 4, 4

	// slack is what scheduling may add to a round trip. A round trip counts as latest until
	// one was measured, and never as more.
	slack, latest = 20 * time.Millisecond, time.Second
)

// A transport takes commands to the server that they are for.
type transport interface {
	// do executes a command and returns its reply. It waits no longer than
	// limit. Where replicas have to acknowledge what is durable and have not,
	// it returns an error beside the reply.
	do(ctx context.Context, limit time.Duration, args []any, k kind) (any, error)
}

var _, _ transport = (*pipeline)(nil), (*cluster)(nil)

// A pipeline sends commands to one server through the client library. Commands
// that arrive while others are under way are gathered, and leave together as soon
// as one of a few senders has come back.
//
// The context of a caller bounds that caller's wait, and nothing else: a command
// that was sent is never taken back, and others may leave with it. That, and
// the way past a connection that stalls, is what the automatic pipelines of the
// client library do not offer.
type pipeline struct {
	client   redis.UniversalClient
	width    int  // how many senders there are beside those that stall
	oneLock  bool // a command must not be for several: its first key says where it goes
	replicas int  // how many must acknowledge what is durable
	trip     backend.RoundTrip

	mu       sync.Mutex
	queue    []*command
	starting bool // a sender is about to take from the queue
	senders  int  // goroutines, each with one batch of commands at a time
	stalled  int  // how many of them have one whose reply is late
}

func newPipeline(c redis.UniversalClient, replicas int) *pipeline {
	p := &pipeline{client: c, width: width, replicas: replicas, oneLock: true}
	if single, ok := c.(*redis.Client); ok {
		p.width, p.oneLock = max(1, min(width, single.Options().PoolSize)), false
	}
	return p
}

// do implements transport.
func (p *pipeline) do(ctx context.Context, limit time.Duration, args []any, k kind) (any, error) {
	return p.enqueue(ctx, limit, args, k).await(ctx, limit)
}

// enqueue queues a command whose reply is awaited later, for no longer than limit.
func (p *pipeline) enqueue(ctx context.Context, limit time.Duration, args []any, k kind) *command {
	c := newCommand(ctx, args)
	c.joins = k == joinable && !p.oneLock
	if k == durable && p.replicas > 0 {
		c.ack = max(limit/2, time.Millisecond) // 0 would be for ever
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue = append(p.queue, c)
	p.startSender()
	return c
}

// startSender sees to it that somebody takes from the queue. It is called with p.mu held.
func (p *pipeline) startSender() {
	if p.starting || len(p.queue) == 0 || p.senders-p.stalled >= p.width || p.senders >= p.width*(1+spare) {
		return
	}
	p.senders++
	p.starting = true
	go p.send(p.senders == 1)
}

// isIdle reports whether nothing is under way, or waits for that.
func (p *pipeline) isIdle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.senders == 0 && len(p.queue) == 0
}

// replyLimit is the time after which no reply is to be expected any more.
func (p *pipeline) replyLimit() time.Duration { return p.trip.Limit(0, latest) + slack }

// send empties the queue. Between batches it lets everybody run first whom the last
// replies have woken: their next commands then leave together. A sender that is
// alone sends its first command at once.
func (p *pipeline) send(alone bool) {
	for {
		if !alone {
			runtime.Gosched()
		}
		batch := p.nextBatch()
		if batch == nil {
			return
		}
		late := time.AfterFunc(p.replyLimit(), p.passSender)
		p.sendBatch(batch)
		p.senderIsBack(late.Stop())
		for _, c := range batch {
			c.done <- struct{}{}
		}
		alone = false
	}
}

// nextBatch returns what a sender is to send next; nil if that is nothing, which ends the
// sender. What nobody waits for any more is left out: a server that is behind would only
// fall back further.
func (p *pipeline) nextBatch() []*command {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.starting = false
	for len(p.queue) > 0 && p.senders-p.stalled <= p.width {
		n := min(len(p.queue), depth)
		batch := slices.DeleteFunc(p.queue[:n:n], func(c *command) bool { return !c.left.CompareAndSwap(false, true) })
		p.queue = p.queue[n:]
		if len(p.queue) == 0 {
			p.queue = nil
		}
		if len(batch) > 0 {
			p.startSender()
			return batch
		}
	}
	p.senders--
	p.startSender()
	return nil
}

// passSender has the queue go past a sender whose reply is late. Its connection is left to
// it: that may well be in order.
func (p *pipeline) passSender() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stalled++
	p.startSender()
}

// senderIsBack has a sender take from the queue next.
func (p *pipeline) senderIsBack(inTime bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.starting = true
	if !inTime {
		p.stalled--
	}
}

// sendBatch has every command end with a reply or an error of its own.
//
// What is for one caller alone carries the values of that one's context, so that
// hooks of the client find a span to put theirs under. Its end is no concern of the
// connection.
func (p *pipeline) sendBatch(batch []*command) {
	ctx := context.Background()
	if len(batch) == 1 {
		ctx = context.WithoutCancel(batch[0].ctx)
	}
	requests := merge(batch)
	sent, ackLimit := requests, time.Duration(0)
	for _, c := range batch {
		ackLimit = max(ackLimit, c.ack)
	}
	if ackLimit > 0 { // WAIT is for all that was sent before on the same connection
		sent = append(sent[:len(sent):len(sent)], &request{args: []any{"wait", p.replicas, ackLimit.Milliseconds()}})
	}
	began := time.Now()
	if process(ctx, p.client, sent) {
		p.trip.Observe(time.Since(began))
	}
	for _, r := range requests {
		r.deliver()
	}
	if ackLimit > 0 {
		p.acknowledge(batch, sent[len(sent)-1])
	}
	isOld := slices.ContainsFunc(batch, func(c *command) bool { return says(c.err, "READONLY") })
	if isOld && !says(requests[0].err, "READONLY") {
		leaveOldMaster(ctx, p.client, pipelined)
	}
}

// How many commands go by connections of single commands, and by those of pipelines.
const (
	single    = 1
	pipelined = 2
)

// leaveOldMaster has the client library give up the connection that the last single command, or the
// last pipeline, was sent on: it does so where the first command is refused because the server has
// become a replica. Where the user may not write, the server closes the connection, and the library
// finds that out by what is sent next.
func leaveOldMaster(ctx context.Context, client redis.UniversalClient, n int) {
	writes := repeated(n, "hdel", nobody, "z")
	process(ctx, client, writes)
	if kindOf(writes[0].err) != backend.ErrAuth {
		return
	}
	process(ctx, client, repeated(n, "quit"))
	if n == single {
		process(ctx, client, repeated(n, "ping"))
	}
}

// repeated are n requests for a command.
func repeated(n int, args ...any) (all []*request) {
	for range n {
		all = append(all, &request{args: args})
	}
	return all
}

// acknowledge tells commands what their replicas said.
func (p *pipeline) acknowledge(batch []*command, wait *request) {
	err := wait.err
	if said, _ := replyOf(err); strings.Contains(said, "replica instances") || says(err, "UNBLOCKED") {
		err = errOldMaster
	}
	if got, _ := wait.reply.(int64); err == nil && int(got) < p.replicas {
		err = &unacknowledgedError{int(got), p.replicas}
	}
	for _, c := range batch {
		if c.ack > 0 && c.err == nil {
			c.err = err
		}
	}
}

// errOldMaster is what a master says of WAIT that has become a replica, or becomes one meanwhile, in
// the words that it has for a write.
var errOldMaster error = oldMasterError{}

type oldMasterError struct{}

func (oldMasterError) Error() string { return "READONLY the server has become a replica" }

// RedisError implements redis.Error.
func (oldMasterError) RedisError() {}

// An unacknowledgedError says that a request has taken effect on the master,
// but that it may be lost with that.
type unacknowledgedError struct{ got, want int }

func (e *unacknowledgedError) Error() string {
	return fmt.Sprintf("%d of the %d replicas that dlock.replicas asks for have acknowledged", e.got, e.want)
}
