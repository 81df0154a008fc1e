package redis

import (
	"context"
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
	polls  bool                 // no subscription is wanted
	stray  func(key, id string) // called for a grant that nobody waits for
	warned sync.Once

	mu      sync.Mutex
	closed  bool
	waiters map[string]*waiter // by id
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
}

func newHub(c redis.UniversalClient, n *nodes, log *slog.Logger, polls bool) *hub {
	return &hub{
		client:  c,
		nodes:   n,
		log:     log,
		polls:   polls,
		waiters: make(map[string]*waiter),
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

// expect has messages for id go to w, until retire or keep. It must come
// before the request whose grant may be told.
func (h *hub) expect(id string, w *waiter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiters[id] = w
}

// retire has a grant of id taken for a stray one.
func (h *hub) retire(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.waiters, id)
}

// keep has messages for id, that of s, go to the hold.
func (h *hub) keep(s *state, id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.waiters, id)
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

// dispatch passes a message on. What it says can only be known to somebody
// who may read the lock's keys, for it holds an id.
func (h *hub) dispatch(payload string) {
	if id, ok := strings.CutPrefix(payload, "contended "); ok {
		h.contended(id)
	} else if id, ok := strings.CutPrefix(payload, "poll "); ok {
		h.poll(id)
	} else if key, g, ok := parseGrant(payload); ok {
		h.granted(key, g)
	}
}

func (h *hub) contended(id string) {
	h.mu.Lock()
	s := h.holdOf(id)
	h.mu.Unlock()
	if s != nil {
		s.wanted()
	}
}

func (h *hub) poll(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if w := h.waiters[id]; w != nil {
		w.nudge()
	}
}

func (h *hub) granted(key string, g grant) {
	h.mu.Lock()
	w, held := h.waiters[g.id], h.holdOf(g.id) != nil
	if w != nil {
		select {
		case w.grants <- g:
		default: // of the same id: that is enough
		}
	}
	h.mu.Unlock()
	if w == nil && !held {
		h.stray(key, g.id)
	}
}

// parseGrant reads "id token µs expiry waiting key".
func parseGrant(payload string) (key string, g grant, ok bool) {
	rest, key, _ := cutLast(payload, ' ')
	var n [4]int64
	for i := len(n) - 1; i >= 0; i-- {
		var field string
		rest, field, _ = cutLast(rest, ' ')
		var err error
		if n[i], err = strconv.ParseInt(field, 10, 64); err != nil {
			return "", g, false
		}
	}
	g = grant{id: rest, token: n[0], us: n[1], expiry: n[2], waiting: n[3], told: true}
	return key, g, rest != "" && strings.HasPrefix(key, prefix+"{")
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
	ps := s.hub.client.Subscribe(ctx)
	defer ps.Close()
	// A read that waits ends only with its connection.
	defer context.AfterFunc(ctx, func() { _ = ps.Close() })()

	channel := s.at.channel()
	_ = ps.Subscribe(ctx, channel) // a failure shows at the first read
	var pause backend.Backoff
	for ctx.Err() == nil {
		m, err := ps.ReceiveTimeout(ctx, 0)
		if err == nil {
			pause.Reset()
			s.take(m)
			continue
		}
		if _, ok := replied(err); ok && ctx.Err() == nil {
			if hopeless(err) || redis.HasErrorPrefix(err, "ERR") {
				s.deny(err)
				return
			}
			_ = ps.Subscribe(ctx, channel)
		}
		backend.Sleep(ctx, pause.Next())
	}
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
