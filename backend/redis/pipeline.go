package redis

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
)

const (
	// depth bounds the commands of one pipeline.
	depth = 256

	// width bounds the pipelines under way from which a reply is to be expected,
	// and spare those from which none is any more, in multiples of that.
	width, spare = 4, 4

	// slack is what scheduling may add to a round trip, and latest the most that one is
	// taken for, which holds until the first was measured.
	slack, latest = 20 * time.Millisecond, time.Second
)

// A pipeliner sends commands to one server through the client library. Commands
// that arrive while others are under way are gathered, and leave together as soon
// as one of a few pipelines has come back.
//
// The context of a caller bounds that caller's wait, and nothing else: a command
// that was sent is never taken back, and others may share its pipeline. That, and
// the way past a connection that stalls, is what the automatic pipelines of the
// client library do not offer.
type pipeliner struct {
	client   redis.UniversalClient
	width    int  // how many pipelines there are beside those that stall
	bounded  bool // the client keeps to the deadline of a context
	oneLock  bool // a command must not be for several: its first key says where it goes
	replicas int  // how many must acknowledge what is durable
	trip     backend.RoundTrip
	closing  <-chan struct{} // when it is closed, nobody waits for a lock any more

	mu       sync.Mutex
	queue    []*command
	coming   bool // a sender is about to take the queue
	senders  []*sender
	stalled  int       // how many of them
	overtake bool      // a timer runs for the queue
	used     time.Time // when something was last sent
}

// A sender carries one pipeline at a time.
type sender struct {
	began   time.Time // of what is under way
	stalled bool      // no reply is to be expected any more
}

func newPipeliner(c redis.UniversalClient, replicas int) *pipeliner {
	p := &pipeliner{client: c, width: width, replicas: replicas, oneLock: true}
	if single, ok := c.(*redis.Client); ok {
		o := single.Options()
		p.width, p.bounded, p.oneLock = max(1, min(width, o.PoolSize)), o.ContextTimeoutEnabled, false
	}
	return p
}

// do implements transport.
func (p *pipeliner) do(ctx context.Context, limit time.Duration, args []any, k kind) (any, error) {
	if k == joinable {
		if reply, err, done := p.direct(ctx, limit, args); done {
			return reply, err
		}
	}
	return p.post(ctx, limit, args, k).await(ctx, limit)
}

// post sends a command whose reply is awaited later, for no longer than limit.
func (p *pipeliner) post(ctx context.Context, limit time.Duration, args []any, k kind) *command {
	c := newCommand(ctx, args)
	c.closing = k.until(p.closing)
	c.joins = k == joinable && !p.oneLock
	if k == durable && p.replicas > 0 {
		c.ack = max(limit/2, time.Millisecond) // 0 would be for ever
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue = append(p.queue, c)
	p.dispatch()
	return c
}

// dispatch sees to it that somebody takes the queue. It is called with p.mu held.
func (p *pipeliner) dispatch() {
	switch {
	case p.coming || len(p.queue) == 0:
	case len(p.senders)-p.stalled < p.width && len(p.senders) < p.width*(1+spare):
		s := &sender{}
		p.senders, p.coming = append(p.senders, s), true
		go p.send(s, len(p.senders) == 1)
	case !p.overtake && p.stalled < len(p.senders):
		p.overtake = true
		time.AfterFunc(p.late(), p.pass)
	}
}

// late is the time after which no reply to a pipeline is to be expected any more.
func (p *pipeliner) late() time.Duration { return p.trip.Limit(0, latest) + slack }

// pass has the queue go past the pipelines that take longer than any before. Their
// connections are left to them: they may well be in order.
func (p *pipeliner) pass() {
	late, now := p.late(), time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.overtake = false
	for _, s := range p.senders {
		if !s.stalled && now.Sub(s.began) >= late {
			s.stalled = true
			p.stalled++
		}
	}
	p.dispatch()
}

// send empties the queue. Between pipelines it lets everybody run first whom the last
// replies have woken: their next commands then leave together. A sender that is
// alone sends its first command at once.
func (p *pipeliner) send(s *sender, alone bool) {
	for {
		if !alone {
			runtime.Gosched()
		}
		batch := p.take(s)
		if batch == nil {
			return
		}
		p.carry(batch)
		p.comeBack(s)
		for _, c := range batch {
			c.arrive()
		}
		alone = false
	}
}

// take returns what s is to send next; nil if that is nothing, which ends s. What
// nobody waits for any more stays: a server that is behind would only fall back
// further.
func (p *pipeliner) take(s *sender) []*command {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.coming = false
	for len(p.queue) > 0 && len(p.senders)-p.stalled <= p.width {
		n := min(len(p.queue), depth)
		batch := slices.DeleteFunc(p.queue[:n:n], func(c *command) bool { return !c.left.CompareAndSwap(false, true) })
		p.queue = p.queue[n:]
		if len(p.queue) == 0 {
			p.queue = nil
		}
		if len(batch) > 0 {
			s.began = time.Now()
			p.used = s.began
			p.dispatch()
			return join(batch)
		}
	}
	p.leave(s)
	p.dispatch()
	return nil
}

// leave ends a sender. It is called with p.mu held.
func (p *pipeliner) leave(s *sender) {
	if s.stalled {
		p.stalled--
	}
	p.senders = slices.DeleteFunc(p.senders, func(o *sender) bool { return o == s })
}

// comeBack has s take the queue next.
func (p *pipeliner) comeBack(s *sender) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.coming, s.began = true, time.Now()
	if s.stalled {
		s.stalled = false
		p.stalled--
	}
}

// unused reports whether nothing was sent since then.
func (p *pipeliner) unused(then time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.senders) == 0 && p.used.Before(then)
}

// carry has every command of a batch end with a reply or an error of its own.
//
// What is for one caller alone carries the values of that one's context, so that
// hooks of the client find a span to put theirs under. Its end is no concern of the
// connection.
func (p *pipeliner) carry(batch []*command) {
	ctx, all := context.Background(), batch
	if len(batch) == 1 {
		ctx = context.WithoutCancel(batch[0].ctx)
	}
	ack := p.acknowledgement(batch)
	if ack != nil {
		all = append(batch[:len(batch):len(batch)], ack)
	}
	began := time.Now()
	if process(ctx, p.client, all) {
		p.trip.Observe(time.Since(began))
	}
	if ack != nil {
		p.acknowledge(batch, ack)
	}
}

// process has the client library carry commands, and reports whether all were
// answered.
func process(ctx context.Context, client redis.UniversalClient, batch []*command) (answered bool) {
	cmds := make([]once, len(batch))
	for i, c := range batch {
		cmds[i] = newOnce(ctx, c.args)
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
	answered = true
	for i, c := range batch {
		c.reply, c.err = cmds[i].outcome()
		if _, said := replied(c.err); c.err != nil && !said {
			answered = false
			if errors.Is(err, errNonsense) {
				c.err = err
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
