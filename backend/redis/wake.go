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

// A hub takes in what the server tells a client unasked, on one subscription,
// and passes it to the waiter or the hold that it concerns.
type hub struct {
	client redis.UniversalClient
	log    *slog.Logger
	polls  bool                 // no subscription is wanted
	stray  func(key, id string) // called for a grant that nobody waits for
	warned sync.Once

	mu      sync.Mutex
	closed  bool
	waiters map[string]*waiter // by id
	holds   map[string]*state  // by id
	subs    map[string]*subscription
}

// A waiter is one Acquire that may be told something.
type waiter struct {
	grants chan grant    // receives the grant of its id
	nudges chan struct{} // receives when it should ask the server
}

func newHub(c redis.UniversalClient, log *slog.Logger, polls bool) *hub {
	return &hub{
		client:  c,
		log:     log,
		polls:   polls,
		waiters: make(map[string]*waiter),
		holds:   make(map[string]*state),
		subs:    make(map[string]*subscription),
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
	delete(h.holds, id)
}

// keep has messages for s.id go to the hold.
func (h *hub) keep(s *state) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.waiters, s.id)
	h.holds[s.id] = s
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

// subscription returns the client's, and begins one if there is none or the
// one there is proved to be of no use. It is nil for a hub that polls.
func (h *hub) subscription(client string, useless *subscription) *subscription {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.subs[client]
	if h.polls || h.closed || s != nil && s != useless {
		return s
	}
	if s != nil {
		go s.close()
	}
	s = &subscription{
		hub:     h,
		channel: channelPrefix + client,
		ready:   make(chan struct{}),
		done:    make(chan struct{}),
	}
	var ctx context.Context
	ctx, s.stop = context.WithCancel(context.Background())
	h.subs[client] = s
	go s.receive(ctx)
	return s
}

// close ends every subscription.
func (h *hub) close() {
	h.mu.Lock()
	h.closed = true
	subs := h.subs
	h.subs = nil
	h.mu.Unlock()
	for _, s := range subs {
		s.close()
	}
}

// nudge has every waiter ask the server: a message may have been missed, as
// long as there was no subscription.
func (h *hub) nudge() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.waiters {
		w.nudge()
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
	s := h.holds[id]
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
	w, held := h.waiters[g.id], h.holds[g.id] != nil
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
	rest, key, _ := cutLast(payload)
	var n [4]int64
	for i := len(n) - 1; i >= 0; i-- {
		var field string
		rest, field, _ = cutLast(rest)
		var err error
		if n[i], err = strconv.ParseInt(field, 10, 64); err != nil {
			return "", g, false
		}
	}
	g = grant{id: rest, token: n[0], us: n[1], expiry: n[2], waiting: n[3], told: true}
	return key, g, rest != "" && strings.HasPrefix(key, prefix+"{")
}

func cutLast(s string) (before, after string, found bool) {
	i := strings.LastIndexByte(s, ' ')
	if i < 0 {
		return "", s, false
	}
	return s[:i], s[i+1:], true
}

// A subscription listens on one connection to what the server tells a client.
type subscription struct {
	hub     *hub
	channel string
	stop    context.CancelFunc
	ready   chan struct{} // closed when it is known whether it works
	denied  bool          // it does not; set before ready is closed
	done    chan struct{} // closed when its goroutine has ended
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

func (s *subscription) close() {
	s.stop()
	<-s.done
}

// receive takes in messages until s is closed or turns out to be forbidden.
func (s *subscription) receive(ctx context.Context) {
	defer close(s.done)
	ps := s.hub.client.Subscribe(ctx)
	defer ps.Close()
	// A read that waits ends only with its connection.
	defer context.AfterFunc(ctx, func() { _ = ps.Close() })()

	_ = ps.Subscribe(ctx, s.channel) // a failure shows at the first read
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
			_ = ps.Subscribe(ctx, s.channel)
		}
		backend.Sleep(ctx, pause.Next())
	}
}

func (s *subscription) take(m any) {
	switch m := m.(type) {
	case *redis.Message:
		s.hub.dispatch(m.Payload)
	case *redis.Subscription:
		s.hub.nudge() // first, so that who waits for s alone is not sent to ask twice
		select {
		case <-s.ready: // anew, after its connection had broken
		default:
			close(s.ready)
		}
	}
}

func (s *subscription) deny(err error) {
	select {
	case <-s.ready: // it worked once: its waiters poll slowly until they learn
		s.hub.nudge()
	default:
		s.denied = true
		close(s.ready)
	}
	s.hub.warned.Do(func() {
		s.hub.log.Warn("dlock: no subscription, waiting goes on by polling", "error", err)
	})
}
