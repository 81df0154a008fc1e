package redis

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
)

// A hub takes in what the server tells a client unasked, and passes it to the
// waiter or the hold that it concerns. One subscription serves all locks of a
// client; on a cluster each lock that it waits for has one.
type hub struct {
	client redis.UniversalClient
	nodes  *nodes // nil unless it is a cluster
	log    *slog.Logger
	polls  bool                   // no subscription is wanted
	stray  func(k key, id string) // called for a grant that nobody waits for
	warned sync.Once
	pulse  time.Duration

	mu      sync.Mutex
	closed  bool
	waiters map[backend.ID]*waiter
	holds   map[backend.ID]*state
	subs    map[address]*subscription
	ears    map[*redis.Client]*ear
	swept   int            // how many subscriptions there were after the last sweep
	moving  sync.WaitGroup // subscriptions on their way to a node
}

// An address is where a client is called: the lock matters on a cluster alone.
type address struct{ lock, client string }

// channel is the one at which at is called. On a cluster its tag puts it where
// the lock is.
func (at address) channel() string {
	if at.lock == "" {
		return channelPrefix + at.client
	}
	return at.lock + shardChannel + at.client
}

// A waiter is one Acquire that may be told something.
type waiter struct {
	at     address
	grants chan grant    // receives the grant of its id
	nudges chan struct{} // receives when it should ask the server

	// Guarded by hub.mu.
	id     string    // of the present entry into the queue
	hinted time.Time // when a message last had this entry ask
}

// hints is how often a message may have a waiter ask. It could be sent again and again.
const hints = 250 * time.Millisecond

func newHub(c redis.UniversalClient, n *nodes, log *slog.Logger, polls bool) *hub {
	return &hub{
		client:  c,
		nodes:   n,
		log:     log,
		polls:   polls,
		pulse:   pulse,
		waiters: make(map[backend.ID]*waiter),
		holds:   make(map[backend.ID]*state),
		subs:    make(map[address]*subscription),
		ears:    make(map[*redis.Client]*ear),
	}
}

var waiters = sync.Pool{New: func() any {
	return &waiter{grants: make(chan grant, 1), nudges: make(chan struct{}, 1)}
}}

// drain forgets what w was told.
func (w *waiter) drain() {
	if w == nil {
		return
	}
	select {
	case <-w.grants:
	default:
	}
	select {
	case <-w.nudges:
	default:
	}
}

// put ends the use of w, to which no id leads any more.
func (w *waiter) put() {
	w.drain()
	waiters.Put(w)
}

// expect has messages for id, that of a request, go to w until retire or keep. It
// must come before what is sent whose grant may be told.
func (h *hub) expect(r backend.ID, id string, w *waiter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w.id, w.hinted = id, time.Time{}
	h.waiters[r] = w
}

// retire has a grant of a request taken for a stray one.
func (h *hub) retire(r backend.ID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.waiters, r)
}

// keep has messages for the id of s go to the hold.
func (h *hub) keep(s *state) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.waiters, s.request.ID)
	h.holds[s.request.ID] = s
}

// discard is retire for the id of a hold.
func (h *hub) discard(s *state) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.holds, s.request.ID)
}

// holdOf returns the hold of id. It is called with h.mu held.
func (h *hub) holdOf(id string) *state {
	s := h.holds[requestOf(id)]
	if s == nil || s.id() != id {
		return nil
	}
	return s
}

// held returns the holds there are.
func (h *hub) held() []*state {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]*state, 0, len(h.holds))
	for _, s := range h.holds {
		all = append(all, s)
	}
	return all
}

// listening returns the subscription of at for one who may come to wait. On a
// cluster none is begun before somebody does.
func (h *hub) listening(at address) *subscription {
	if at.lock == "" {
		return h.subscription(at, nil)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.subs[at]
}

// subscription returns the one of at, and begins one if there is none or the
// one there is proved to be of no use. It is nil for a hub that polls.
func (h *hub) subscription(at address, useless *subscription) *subscription {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.subs[at]
	if h.polls || h.closed || s != nil && s != useless {
		return s
	}
	if s != nil {
		if e := s.ear; e != nil && h.ears[e.node] == e {
			delete(h.ears, e.node)
		}
		h.moving.Go(s.close)
		if h.nodes != nil {
			h.nodes.reload() // what it was subscribed on may not have the lock any more
		}
	}
	return h.begin(at)
}

// begin makes and starts a subscription. It is called with h.mu held.
func (h *hub) begin(at address) *subscription {
	s := &subscription{hub: h, at: at, ready: make(chan struct{})}
	s.ctx, s.stop = context.WithCancel(context.Background())
	if h.nodes == nil {
		s.done = make(chan struct{})
		go s.receive(s.ctx)
	} else {
		h.sweep()
		h.moving.Go(s.settle)
	}
	h.subs[at] = s
	return s
}

// close ends every subscription.
func (h *hub) close() {
	h.mu.Lock()
	h.closed = true
	subs, ears := h.subs, h.ears
	h.subs, h.ears = nil, nil
	h.mu.Unlock()
	for _, s := range subs {
		s.close()
	}
	h.moving.Wait()
	for _, e := range ears {
		e.close()
	}
}

// nudge has every waiter at an address ask the server: a message may have been
// missed, as long as there was no subscription.
func (h *hub) nudge(at address) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.waiters {
		if w.at == at {
			w.nudge()
		}
	}
}

func (w *waiter) nudge() {
	select {
	case w.nudges <- struct{}{}:
	default:
	}
}

// dispatch passes a message on. Whoever may publish can send one: it is of no use
// unless it shows that its sender has read, in the keys, an id of this client.
func (h *hub) dispatch(payload string) {
	if hint, ok := strings.CutPrefix(payload, "contended "); ok {
		h.contended(parseHint(hint))
	} else if hint, ok := strings.CutPrefix(payload, "poll "); ok {
		h.poll(parseHint(hint))
	} else if k, g, ok := parseGrant(payload); ok {
		h.granted(k, g)
	}
}

func (h *hub) contended(open, digest string) {
	h.mu.Lock()
	s := h.holds[requestOf(open)]
	h.mu.Unlock()
	if s != nil && isOf(digest, s.id()) {
		s.wanted()
	}
}

func (h *hub) poll(open, digest string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if w := h.waiters[requestOf(open)]; w != nil && isOf(digest, w.id) && time.Since(w.hinted) > hints {
		w.hinted = time.Now()
		w.nudge()
	}
}

func (h *hub) granted(k key, g grant) {
	h.mu.Lock()
	w, held := h.waiters[requestOf(g.id)], h.holdOf(g.id) != nil
	if w != nil && w.id != g.id {
		w = nil
	}
	if w != nil {
		select {
		case w.grants <- g:
		default: // of the same id: that is enough
		}
	}
	h.mu.Unlock()
	if w == nil && !held {
		h.stray(k, g.id)
	}
}

// parseGrant reads "id token µs expiry waiting key".
func parseGrant(payload string) (k key, g grant, ok bool) {
	rest, name, _ := cutLast(payload, ' ')
	var n [4]int64
	for i := len(n) - 1; i >= 0; i-- {
		var field string
		rest, field, _ = cutLast(rest, ' ')
		v, err := strconv.ParseUint(field, 10, 53) // as exact as a script is
		if err != nil {
			return "", g, false
		}
		n[i] = int64(v)
	}
	g = grant{id: rest, token: n[0], us: n[1], expiry: n[2], waiting: n[3], told: true}
	return key(name), g, rest != "" && strings.HasPrefix(name, prefix+"{")
}

func cutLast(s string, sep byte) (before, after string, found bool) {
	i := strings.LastIndexByte(s, sep)
	if i < 0 {
		return "", s, false
	}
	return s[:i], s[i+1:], true
}

// A subscription listens to what the server tells a client: on a connection of
// its own, or on a cluster on the ear that the node has.
type subscription struct {
	hub    *hub
	at     address
	ctx    context.Context // ends with stop
	stop   context.CancelFunc
	ready  chan struct{} // closed when it is known whether it works
	denied bool          // it does not; set before ready is closed
	done   chan struct{} // closed when its goroutine has ended; nil on a cluster

	ear   *ear // on a cluster, where it listens; guarded by hub.mu
	pause backend.Backoff
}

// works waits until the server has acknowledged s. It gives up after limit.
func (s *subscription) works(ctx context.Context, closing <-chan struct{}, limit time.Duration) bool {
	if s == nil {
		return false
	}
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-s.ready:
		return !s.denied
	case <-t.C:
	case <-closing:
	case <-ctx.Done():
	}
	return false
}

// known reports, without waiting, whether s works and whether it does not.
func (s *subscription) known() (works, fails bool) {
	if s == nil {
		return false, false
	}
	select {
	case <-s.ready:
		return !s.denied, s.denied
	default:
		return false, false
	}
}

// close ends s, and with it the ear that is of as little use.
func (s *subscription) close() {
	s.stop()
	if s.done != nil {
		<-s.done
	}
	s.hub.mu.Lock()
	e := s.ear
	s.hub.mu.Unlock()
	if e != nil {
		e.close()
	}
}

// receive takes in messages until s is closed or turns out to be forbidden.
func (s *subscription) receive(ctx context.Context) {
	defer close(s.done)
	var pause backend.Backoff
	for ctx.Err() == nil && s.listen(ctx, &pause) {
		backend.Sleep(ctx, pause.Next())
	}
}

// listen takes in messages on one connection, and on those that the client library puts
// in its place when that breaks. It reports false if s is forbidden.
func (s *subscription) listen(ctx context.Context, pause *backend.Backoff) bool {
	ps := s.hub.client.Subscribe(ctx)
	defer ps.Close()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	// A read that waits ends only with its connection.
	defer context.AfterFunc(ctx, func() { _ = ps.Close() })()
	var heard hearing
	go heard.watch(ctx, ps, s.hub.pulse, func() bool { return s.hub.anybodyAt(func(at address) bool { return at == s.at }) })

	channel := s.at.channel()
	subscribe := func() error { return ps.Subscribe(ctx, channel) } // a failure shows at the next read
	_ = guard(subscribe)
	for ctx.Err() == nil {
		m, err := hear(ctx, ps)
		if err == nil {
			pause.Reset()
			heard.count.Add(1)
			s.take(m)
			continue
		}
		if errors.Is(err, redis.ErrClosed) || errors.Is(err, errNonsense) {
			break
		}
		if _, ok := replied(err); ok && ctx.Err() == nil {
			if refused(err) {
				s.deny(err)
				return false
			}
			_ = guard(subscribe)
		}
		backend.Sleep(ctx, pause.Next())
	}
	return true
}

// hear returns what comes next on a subscription.
func hear(ctx context.Context, ps *redis.PubSub) (m any, err error) {
	err = guard(func() (err error) {
		m, err = ps.ReceiveTimeout(ctx, 0)
		return err
	})
	return m, err
}

func (s *subscription) take(m any) {
	switch m := m.(type) {
	case *redis.Message:
		s.hub.dispatch(m.Payload)
	case *redis.Subscription:
		s.acknowledge()
	}
}

// acknowledge says that s works. Waiters are nudged first, so that who waits
// for s alone is not sent to ask twice.
func (s *subscription) acknowledge() {
	s.hub.nudge(s.at)
	select {
	case <-s.ready: // anew, after its connection had broken
	default:
		close(s.ready)
	}
}

func (s *subscription) deny(err error) {
	select {
	case <-s.ready: // it worked once: its waiters poll slowly until they learn
		s.hub.nudge(s.at)
	default:
		s.denied = true
		close(s.ready)
	}
	s.hub.warned.Do(func() {
		s.hub.log.Warn("dlock: no subscription, waiting goes on by polling", "error", err)
	})
}
