package redis

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
)

// maxIdle is how many subscriptions a client keeps on a cluster before it ends
// those that nobody waits on.
const maxIdle = 256

// An ear is one connection to a node of a cluster, on which a client is told of
// the locks there. It does not reconnect: what it was there for may have gone
// to another node, and asks anew where to listen.
type ear struct {
	hub  *hub
	node *redis.Client
	ps   *redis.PubSub
	ctx  context.Context // ends with stop
	stop context.CancelFunc
	done chan struct{} // closed when its goroutine has ended

	mu     sync.Mutex
	closed bool
	subs   map[string]*subscription // by channel
}

// settle finds s a place: the ear of the node that has the lock.
func (s *subscription) settle() {
	for s.ctx.Err() == nil {
		node, err := s.hub.nodes.owner(s.ctx, subscribing, s.at.lock)
		if err == nil && s.hub.listen(s, node) {
			return
		}
		s.again()
	}
}

// again waits before s looks for a place once more.
func (s *subscription) again() {
	s.hub.nodes.reload()
	backend.Sleep(s.ctx, s.pause.Next())
}

// working reports whether s has been acknowledged or refused.
func (s *subscription) working() bool {
	select {
	case <-s.ready:
		return true
	default:
		return false
	}
}

// listen gives s to the ear of a node. It reports false if that has just ended.
func (h *hub) listen(s *subscription, node *redis.Client) bool {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return false
	}
	e := h.ears[node]
	if e == nil {
		e = newEar(h, node)
		h.ears[node] = e
	}
	s.ear = e
	h.mu.Unlock()
	return e.add(s)
}

func newEar(h *hub, node *redis.Client) *ear {
	e := &ear{hub: h, node: node, done: make(chan struct{}), subs: make(map[string]*subscription)}
	e.ctx, e.stop = context.WithCancel(context.Background())
	e.ps = node.SSubscribe(e.ctx)
	go e.receive()
	return e
}

// add subscribes to the channel of s. A failure shows at the next read.
func (e *ear) add(s *subscription) bool {
	channel := s.at.channel()
	e.mu.Lock()
	closed := e.closed
	if !closed {
		e.subs[channel] = s
	}
	e.mu.Unlock()
	if !closed {
		_ = guard(func() error { return e.ps.SSubscribe(e.ctx, channel) })
	}
	return !closed
}

// has reports whether e is where an address is called.
func (e *ear) has(at address) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.subs[at.channel()] != nil
}

// take removes the subscription to a channel.
func (e *ear) take(channel string) *subscription {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.subs[channel]
	delete(e.subs, channel)
	return s
}

func (e *ear) close() {
	e.stop()
	_ = e.ps.Close() // a read that waits ends only with its connection
	<-e.done
}

// receive takes in messages until the connection ends.
func (e *ear) receive() {
	defer close(e.done)
	var heard hearing
	go heard.watch(e.ctx, e.ps, e.hub.pulse, func() bool { return e.hub.anybodyAt(e.has) })
	for e.ctx.Err() == nil {
		m, err := hear(e.ctx, e.ps)
		if _, said := replied(err); err != nil && !said {
			break
		}
		if err != nil {
			e.refused(err)
			continue
		}
		heard.count.Add(1)
		e.hear(m)
	}
	e.stop()
	_ = e.ps.Close()
	e.mu.Lock()
	e.closed = true
	all := slices.Collect(maps.Values(e.subs))
	e.mu.Unlock()
	e.hub.forget(e)
	e.hub.move(all)
}

func (e *ear) hear(m any) {
	switch m := m.(type) {
	case *redis.Message:
		e.hub.dispatch(m.Payload)
	case *redis.Subscription:
		if m.Kind != "ssubscribe" { // the slot has gone elsewhere
			if s := e.take(m.Channel); s != nil {
				e.hub.move([]*subscription{s})
			}
			return
		}
		e.mu.Lock()
		s := e.subs[m.Channel]
		e.mu.Unlock()
		if s != nil {
			s.acknowledge()
		}
	}
}

// refused takes an error, which does not say what it is about: it is one of the
// subscriptions that are not acknowledged.
func (e *ear) refused(err error) {
	e.mu.Lock()
	var pending []*subscription
	for channel, s := range e.subs {
		if !s.working() {
			pending = append(pending, s)
			delete(e.subs, channel)
		}
	}
	e.mu.Unlock()
	if !refused(err) {
		e.hub.move(pending)
		return
	}
	for _, s := range pending {
		s.deny(err)
	}
}

func (h *hub) forget(e *ear) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ears[e.node] == e {
		delete(h.ears, e.node)
	}
}

// move finds a new place for subscriptions that have lost theirs, as far as
// anybody waits. One that has worked is replaced: who finds it of no use means
// the old one.
func (h *hub) move(all []*subscription) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	wanted := h.wanted()
	for _, s := range all {
		switch {
		case h.subs[s.at] != s:
			s.stop()
		case !s.working():
			h.moving.Go(func() {
				s.again()
				s.settle()
			})
		case wanted[s.at]:
			s.stop()
			h.nodes.reload()
			h.begin(s.at)
		default:
			s.stop()
			delete(h.subs, s.at)
		}
	}
}

// wanted are the addresses at which somebody waits. It is called with h.mu held.
func (h *hub) wanted() map[address]bool {
	at := make(map[address]bool, len(h.waiters))
	for _, w := range h.waiters {
		at[w.at] = true
	}
	return at
}

// sweep ends subscriptions that nobody waits on, when there are many. It is
// called with h.mu held.
func (h *hub) sweep() {
	if len(h.subs) < max(maxIdle, 2*h.swept) {
		return
	}
	wanted := h.wanted()
	idle := make(map[*ear][]string) // channels
	for at, s := range h.subs {
		if wanted[at] || !s.working() {
			continue
		}
		s.stop()
		delete(h.subs, at)
		if channel := at.channel(); s.ear != nil && s.ear.take(channel) == s {
			idle[s.ear] = append(idle[s.ear], channel)
		}
	}
	h.swept = len(h.subs)
	for e, channels := range idle {
		h.moving.Go(func() {
			_ = guard(func() error { return e.ps.SUnsubscribe(e.ctx, channels...) })
		})
	}
}
