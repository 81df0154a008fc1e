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
	// depth bounds the commands of one pipeline, and flight the pipelines that are
	// under way on a link. So many commands are worth several.
	depth, flight, many = 256, 4, 16

	// stalled is how long a pipeline may take before others go past it: a
	// connection on which nothing comes back must not hold up the rest.
	stalled = 50 * time.Millisecond

	// grace is how long a reply that is under way may still come once its
	// caller has gone: to know what has happened saves much.
	grace = 10 * time.Millisecond
)

// A wire sends commands. Those that arrive while others are under way leave
// together as a pipeline. A caller who finds the wire idle sends by itself if
// it can: to wake a goroutine that sends, and to be woken by it, costs as much as
// the round trip.
//
// The caller's context bounds the caller's wait and nothing else: a command
// that was sent is never taken back, and others may share its pipeline. That,
// and the way past a connection that stalls, is what the automatic pipelines
// of the client library do not offer.
type wire struct {
	client   redis.UniversalClient
	own      *redis.Client // the client, if nobody else uses it: it gets links
	inline   bool          // the client keeps to the deadline of a context
	oneLock  bool          // a command must not be for several: its first key says where it goes
	replicas int           // how many must acknowledge what is durable

	mu      sync.Mutex
	queue   []*parcel
	sender  int       // counts senders; the last one takes from the queue
	busy    bool      // it is sending
	started time.Time // when it last took something
	idle    *link     // the one that the sender before has left; nil: none
	links   map[*link]struct{}
	closed  bool
}

// A turn is the right to send.
type turn struct {
	sender int
	link   *link // nil: the client has to find a connection each time
}

// A parcel is one command on its way, or a joint of several.
type parcel struct {
	args  []any
	joins bool      // its script takes several locks
	parts []*parcel // of a joint: what one command does for all of them
	reply any
	err   error         // of the reply, or why there is none
	left  atomic.Bool   // it was sent, or its caller has gone before that
	ack   time.Duration // how long its replicas have; 0: it needs none
	lacks error         // what became of that
	done  chan struct{} // receives when there is a reply or an error
}

var (
	parcels = sync.Pool{New: func() any { return &parcel{done: make(chan struct{}, 1)} }}
	timers  = sync.Pool{New: func() any { return time.NewTimer(time.Hour) }}
)

func newWire(c redis.UniversalClient, replicas int) *wire {
	single, ok := c.(*redis.Client)
	return &wire{client: c, inline: ok && single.Options().ContextTimeoutEnabled, oneLock: !ok, replicas: replicas}
}

func newParcel(args []any) *parcel {
	p := parcels.Get().(*parcel)
	p.args = args
	return p
}

// close ends the links. What is under way on them fails.
func (w *wire) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for l := range w.links {
		l.close()
	}
}

// retire gives up the links of a wire on which nothing was sent since then, and
// reports whether it did. Who still has the wire goes through the client.
func (w *wire) retire(then time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.started.After(then) {
		return false
	}
	w.own = nil
	if w.idle != nil {
		w.drop(w.idle)
		w.idle = nil
	}
	return true
}

// do implements carrier.
func (w *wire) do(ctx context.Context, limit time.Duration, args []any, k kind) (any, error) {
	if k != durable || w.replicas == 0 {
		now := time.Now()
		if t, ok := w.tryEnter(ctx, now); ok {
			return w.direct(ctx, t, now, limit, args, k)
		}
	}
	return w.post(limit, args, k).await(ctx, limit)
}

// direct sends on the caller's own goroutine.
func (w *wire) direct(ctx context.Context, t turn, now time.Time, limit time.Duration, args []any, k kind) (any, error) {
	if t.link == nil {
		cmd := newOnce(ctx, args)
		_ = w.client.Process(deadline{ctx, now.Add(limit)}, cmd)
		w.leave(t)
		return cmd.Result()
	}
	e := early{w: w, t: t, sent: now}
	e.post(limit, args)
	if e.hasCome(k) {
		return e.result()
	}
	return e.await(ctx)
}

// An early command is sent by its caller, who takes the reply later.
type early struct {
	w     *wire
	t     turn // it has a link
	sent  time.Time
	limit time.Duration
}

func (e *early) post(limit time.Duration, args []any) {
	e.limit = limit
	e.t.link.post(e.sent, args)
}

// hasCome waits for a moment and reports whether it is known what has become of
// the command. Then result returns it, else await.
func (e *early) hasCome(k kind) bool { return e.t.link.hasCome(k) }

func (e *early) result() (any, error) {
	p := newParcel(nil)
	e.t.link.receive(p)
	e.w.leave(e.t)
	return p.result()
}

// await has another goroutine wait, so that the caller can go away.
func (e *early) await(ctx context.Context) (any, error) {
	p := newParcel(nil)
	p.left.Store(true)
	go func() {
		e.t.link.wait(time.Now(), e.limit, e.limit)
		e.t.link.receive(p)
		e.w.leave(e.t)
		p.done <- struct{}{}
	}()
	return p.await(ctx, e.limit-time.Since(e.sent))
}

// post sends a command whose reply is awaited later, for no longer than limit.
func (w *wire) post(limit time.Duration, args []any, k kind) *parcel {
	p := newParcel(args)
	p.joins = k == prompt && !w.oneLock
	if k == durable && w.replicas > 0 {
		p.ack = max(limit/2, time.Millisecond) // 0 would be for ever
	}
	w.submit(p)
	return p
}

// A once is a command that the client library does not repeat, whatever its
// options say. A release that had been answered to nobody would be answered anew,
// that there is nothing to release: only who knows that it is a repetition can
// tell that from a loss.
type once struct{ *redis.Cmd }

func newOnce(ctx context.Context, args []any) once { return once{redis.NewCmd(ctx, args...)} }

// NoRetry implements redis.Cmder.
func (once) NoRetry() bool { return true }

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
	reply, err, lacks := p.reply, p.err, p.lacks
	p.args, p.joins, p.reply, p.err, p.ack, p.lacks = nil, false, nil, nil, 0, nil
	p.left.Store(false)
	parcels.Put(p)
	if err == nil {
		err = lacks
	}
	return reply, err
}

// tryEnter takes the idle wire for a caller that sends by itself. Without a
// link nobody can call it back, so it must not be able to go away.
func (w *wire) tryEnter(ctx context.Context, now time.Time) (t turn, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.busy:
	case w.own != nil:
		ok = w.idle != nil && w.idle.isFresh(now)
	default:
		ok = w.inline && ctx.Done() == nil
	}
	if ok {
		t = w.begin(now)
	}
	return t, ok
}

// lend takes the idle wire for a caller that is to post a command, if it has a
// link.
func (w *wire) lend() (e early, ok bool) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy || w.idle == nil || !w.idle.isFresh(now) {
		return e, false
	}
	return early{w: w, t: w.begin(now), sent: now}, true
}

// begin makes a new sender the one that takes from the queue. It has the link of
// the one before, unless that is stuck and has not come back. It is called with
// w.mu held.
func (w *wire) begin(now time.Time) turn {
	w.busy, w.started = true, now
	w.sender++
	t := turn{w.sender, w.idle}
	w.idle = nil
	if t.link == nil {
		t.link = w.newLink()
	}
	return t
}

// newLink returns nil if the client is not the wire's own. It is called with
// w.mu held.
func (w *wire) newLink() *link {
	if w.own == nil {
		return nil
	}
	l := newLink(w.own)
	if w.closed {
		l.close()
		return l
	}
	if w.links == nil {
		w.links = make(map[*link]struct{})
	}
	w.links[l] = struct{}{}
	return l
}

// leave has what has arrived meanwhile sent, if nobody else does.
func (w *wire) leave(t turn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.putBack(t)
	switch {
	case w.sender != t.sender:
	case len(w.queue) == 0:
		w.busy = false
	default:
		go w.send(w.begin(time.Now()))
	}
}

// putBack leaves the link to the next sender, if there is none that has another.
// It is called with w.mu held.
func (w *wire) putBack(t turn) {
	switch {
	case t.link == nil:
	case t.link.broken == nil && w.sender == t.sender && w.own != nil:
		w.idle = t.link
	default:
		w.drop(t.link)
	}
}

func (w *wire) submit(p *parcel) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = append(w.queue, p)
	if now := time.Now(); !w.busy || now.Sub(w.started) > stalled && w.mayPass() {
		go w.send(w.begin(now))
	}
}

// mayPass reports whether there may be one more link beside those that stall. It
// is called with w.mu held.
func (w *wire) mayPass() bool {
	return w.own == nil || len(w.links) < w.own.Options().PoolSize
}

// send empties the queue until another sender has taken its place. It lets
// everybody run first whom the last replies have woken: their next commands then
// leave together. While they run the server has other pipelines to work on.
func (w *wire) send(t turn) {
	var under []*pipeline // sent, with replies still to come; the oldest first
	for {
		runtime.Gosched()
		next := w.take(t, len(under))
		if next == nil && len(under) == 0 {
			return
		}
		if next != nil && len(next.batch) > 0 && w.push(t, next) {
			under = append(under, next)
			if len(under) < flight {
				continue
			}
		}
		under = w.pull(&t, under)
	}
}

// take returns what t is to send next, beside the pipelines under way; nil if
// another one sends or there is nothing. Many commands become several pipelines.
func (w *wire) take(t turn, under int) *pipeline {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.sender == t.sender && len(w.queue) > 0:
	case under > 0:
		return nil
	default:
		w.putBack(t)
		w.busy = w.busy && w.sender != t.sender
		return nil
	}
	n := min(len(w.queue), depth)
	if n >= many && t.link != nil {
		n /= flight - under
	}
	batch := w.queue[:n:n]
	w.queue = w.queue[n:]
	if len(w.queue) == 0 {
		w.queue = nil
	}
	w.started = time.Now()
	// What nobody waits for any more stays: a server that is behind would only
	// fall back further.
	return w.pack(slices.DeleteFunc(batch, func(p *parcel) bool { return !p.left.CompareAndSwap(false, true) }))
}

// exchange is a link in the place of one that is of no use.
func (w *wire) exchange(l *link) *link {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drop(l)
	return w.newLink()
}

// drop is called with w.mu held.
func (w *wire) drop(l *link) {
	l.close()
	delete(w.links, l)
}

// A pipeline is commands that leave together.
type pipeline struct {
	batch []*parcel
	ack   *parcel // the command behind them that waits for replicas; nil: none does
}

func (w *wire) pack(batch []*parcel) *pipeline {
	return &pipeline{batch, w.acknowledgement(batch)}
}

// all is the parcels in the order in which they leave.
func (p *pipeline) all() []*parcel {
	if p.ack == nil {
		return p.batch
	}
	return append(p.batch[:len(p.batch):len(p.batch)], p.ack)
}

// push sends a pipeline and reports whether its replies are still to come. What
// goes through the client library is over at once.
func (w *wire) push(t turn, p *pipeline) bool {
	p.batch = join(p.batch)
	if t.link == nil {
		_ = execOn(w.client, p.all())
	} else if t.link.push(p.all()) {
		return true
	}
	w.deliver(p)
	return false
}

// pull has every parcel of the oldest pipeline end with a reply or an error of its
// own, and those of all of them if the link is of no use any more. It returns the
// others.
func (w *wire) pull(t *turn, under []*pipeline) []*pipeline {
	for len(under) > 0 {
		p := under[0]
		for _, one := range p.all() {
			t.link.receive(one)
		}
		w.deliver(p)
		under = under[1:]
		if t.link.broken == nil {
			return under
		}
	}
	if t.link != nil && t.link.broken != nil {
		t.link = w.exchange(t.link)
	}
	return nil
}

// deliver wakes who waits for the parcels of a pipeline that is over.
func (w *wire) deliver(p *pipeline) {
	if p.ack != nil {
		w.acknowledge(p)
	}
	for _, one := range p.batch {
		one.arrive()
	}
}

// arrive wakes who waits for a parcel. A joint ends here, its parts do not.
func (p *parcel) arrive() {
	if len(p.parts) == 0 {
		p.done <- struct{}{}
		return
	}
	p.share()
	for _, part := range p.parts {
		part.done <- struct{}{}
	}
	clear(p.parts)
	p.parts = p.parts[:0]
	_, _ = p.result()
}

// execOn has the client library send a pipeline. It returns the error of a
// command that got no reply.
func execOn(c redis.UniversalClient, batch []*parcel) (lost error) {
	ctx := context.Background()
	cmds := make([]once, len(batch))
	for i, p := range batch {
		cmds[i] = newOnce(ctx, p.args)
	}
	if len(cmds) == 1 {
		_ = c.Process(ctx, cmds[0])
	} else {
		pipe := c.Pipeline()
		for _, cmd := range cmds {
			_ = pipe.Process(ctx, cmd)
		}
		_, _ = pipe.Exec(ctx)
	}
	for i, p := range batch {
		p.reply, p.err = cmds[i].Result()
		if _, said := replied(p.err); !said && p.err != nil {
			lost = p.err
		}
	}
	return lost
}
