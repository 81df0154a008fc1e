package redis

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
)

const (
	// maxIdle is how many channels a client keeps on a cluster before it ends
	// those on which nobody waits.
	maxIdle = 256

	// probeInterval is how long a subscription may be silent before it is asked whether
	// it lives, and then again before it is given up.
	probeInterval = 5 * time.Second
)

// A channel is one of the server's, to which the client subscribes.
type channel struct {
	listener *listener
	name     string
	ctx      context.Context // ends with stop
	stop     context.CancelFunc
	ready    chan struct{} // closed when state is known
	state    channelState
	began    time.Time
	pause    backend.Backoff

	subscription *subscription // that has it; nil: none. Guarded by listener.mu
}

// A channelState says whether a channel works.
type channelState uint8

const (
	undecided channelState = iota
	working                // the server has acknowledged it
	denied                 // there can be no such subscription
)

// works waits until the server has acknowledged c. It gives up after limit.
func (c *channel) works(ctx context.Context, limit time.Duration) bool {
	if c == nil {
		return false
	}
	ctx, cancel := backend.Bound(ctx, limit)
	defer cancel()
	select {
	case <-c.ready:
	case <-ctx.Done():
	}
	return c.status() == working
}

// status is the state of c, without waiting.
func (c *channel) status() channelState {
	if c == nil {
		return undecided
	}
	select {
	case <-c.ready:
		return c.state
	default:
		return undecided
	}
}

// acknowledge says that c works. Waiters are woken first, so that who waits
// for c alone is not sent to ask twice.
func (c *channel) acknowledge() {
	c.listener.wakeWaiters(c.name)
	if c.status() == undecided {
		c.state = working
		close(c.ready)
	}
}

// deny says that c does not work. Its subscription may well serve others.
func (c *channel) deny(err error) {
	c.listener.mu.Lock()
	c.subscription = nil
	c.listener.mu.Unlock()
	c.state = denied
	close(c.ready)
	c.listener.warned.Do(func() {
		c.listener.log.Warn("dlock: no subscription, waiting goes on by polling", "error", discreet(err))
	})
}

// place finds a subscription for c: that of the node that has the lock.
func (c *channel) place() {
	for c.ctx.Err() == nil {
		node, err := c.listener.nodeOf(c)
		if err == nil && c.listener.addChannel(c, node) {
			return
		}
		c.awaitRetry()
	}
}

// placeAgain is place for a channel that has lost its subscription, or its predecessor.
func (c *channel) placeAgain() {
	c.awaitRetry()
	c.place()
}

func (c *channel) awaitRetry() {
	c.listener.reload()
	backend.Sleep(c.ctx, c.pause.Next())
}

// close ends c, and with it the subscription, which is of as little use.
func (c *channel) close() {
	c.stop()
	c.listener.mu.Lock()
	s := c.subscription
	c.listener.mu.Unlock()
	if s != nil {
		s.close()
	}
}

// existing returns the channel of that name for one who may come to wait. On a
// cluster none is begun before somebody does.
func (l *listener) existing(name string) *channel {
	if l.cluster == nil {
		return l.subscribe(name, nil)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.channels[name]
}

// isOverdue reports that c has not worked for so long that another may: who was denied
// it may be allowed it by now.
func (c *channel) isOverdue() bool {
	return c.status() != working && time.Since(c.began) > pollAfter
}

// subscribe returns the channel of that name, and begins one if there is none or the
// one there is proved to be of no use. It is nil for a listener that only polls.
func (l *listener) subscribe(name string, useless *channel) *channel {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.channels[name]
	if l.pollOnly || l.closed || c != nil && c != useless && !c.isOverdue() {
		return c
	}
	if c != nil {
		if s := c.subscription; s != nil && l.subscriptions[s.node] == s {
			delete(l.subscriptions, s.node)
		}
		l.moving.Go(c.close)
		l.reload() // the node that it was subscribed on may not have the lock any more
	}
	l.sweep()
	c = l.newChannel(name)
	l.moving.Go(c.place)
	return c
}

// newChannel is called with l.mu held.
func (l *listener) newChannel(name string) *channel {
	c := &channel{listener: l, name: name, ready: make(chan struct{}), began: time.Now()}
	c.ctx, c.stop = context.WithCancel(context.Background())
	l.channels[name] = c
	return c
}

// reload has the client find out again which node has which lock.
func (l *listener) reload() {
	if l.cluster != nil {
		l.cluster.reload()
	}
}

// nodeOf returns the node on which c is to be; nil if there is one server.
func (l *listener) nodeOf(c *channel) (*redis.Client, error) {
	if l.cluster == nil {
		return nil, nil
	}
	return l.cluster.owner(c.ctx, subscribeTimeout, c.name)
}

// addChannel gives c to the subscription on a node. It reports false if that has just
// ended, or another channel has taken the place of c.
func (l *listener) addChannel(c *channel, node *redis.Client) bool {
	l.mu.Lock()
	s, wanted := l.subscriptions[node], !l.closed && l.channels[c.name] == c
	if wanted && s == nil {
		s = l.newSubscription(node)
		l.subscriptions[node] = s
	}
	if !wanted || s.ctx.Err() != nil {
		l.mu.Unlock()
		return false
	}
	c.subscription = s
	l.mu.Unlock()
	s.write(func() error { return s.subscribe(s.ctx, c.name) })
	return true
}

// close ends every subscription.
func (l *listener) close() {
	l.mu.Lock()
	l.closed = true
	channels, subscriptions := l.channels, l.subscriptions
	l.channels, l.subscriptions = nil, nil
	l.mu.Unlock()
	for _, c := range channels {
		c.close()
	}
	l.moving.Wait()
	for _, s := range subscriptions {
		s.close()
	}
}

// move finds a new subscription for channels that have lost theirs. On a cluster those on
// which nobody waits are ended. One that has worked is replaced: who finds it of no use
// means the old one.
func (l *listener) move(all []*channel) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	awaited := l.awaited()
	for _, c := range all {
		c.subscription = nil
		switch {
		case l.channels[c.name] != c:
			c.stop()
		case c.status() == undecided:
			l.moving.Go(c.placeAgain)
		case l.cluster == nil || awaited[c.name]:
			c.stop()
			l.moving.Go(l.newChannel(c.name).placeAgain)
		default:
			c.stop()
			delete(l.channels, c.name)
		}
	}
}

// awaited are the names of the channels on which somebody waits. It is called with l.mu
// held.
func (l *listener) awaited() map[string]bool {
	names := make(map[string]bool, len(l.waiters))
	for _, w := range l.waiters {
		names[w.channel] = true
	}
	return names
}

// sweep ends channels on which nobody waits, when there are many. It is
// called with l.mu held.
func (l *listener) sweep() {
	if l.cluster == nil || len(l.channels) < max(maxIdle, 2*l.swept) {
		return
	}
	awaited := l.awaited()
	for name, c := range l.channels {
		if awaited[name] || c.status() == undecided {
			continue
		}
		c.stop()
		delete(l.channels, name)
		if s := c.subscription; s != nil {
			l.moving.Go(func() {
				s.write(func() error { return s.ps.SUnsubscribe(s.ctx, name) })
			})
		}
	}
	l.swept = len(l.channels)
}

// A subscription is one connection on which a client is told something. It does not
// reconnect: a lock may have gone to another node, and its channel asks anew where to
// subscribe.
type subscription struct {
	listener  *listener
	node      *redis.Client // nil if there is one server
	subscribe func(ctx context.Context, channels ...string) error
	ps        *redis.PubSub
	ctx       context.Context // ends with stop
	stop      context.CancelFunc
	done      chan struct{} // closed when its goroutine has ended
	received  atomic.Int64  // how many messages
}

func (l *listener) newSubscription(node *redis.Client) *subscription {
	s := &subscription{listener: l, node: node, done: make(chan struct{})}
	s.ctx, s.stop = context.WithCancel(context.Background())
	if l.cluster == nil {
		s.ps = l.client.Subscribe(s.ctx)
		s.subscribe = s.ps.Subscribe
	} else {
		s.ps = node.SSubscribe(s.ctx)
		s.subscribe = s.ps.SSubscribe
	}
	go s.receive()
	return s
}

// write sends something. If that fails the client library may have opened a connection
// anew, on which nobody subscribes to what has just been asked for: so s ends. What the
// server says instead shows at the next read.
func (s *subscription) write(send func() error) {
	err := guard(send)
	if _, isReply := replyOf(err); err != nil && !isReply {
		_ = s.ps.Close()
	}
}

// channels returns those channels of s that are such.
func (s *subscription) channels(are func(*channel) bool) (all []*channel) {
	s.listener.mu.Lock()
	defer s.listener.mu.Unlock()
	for _, c := range s.listener.channels {
		if c.subscription == s && are(c) {
			all = append(all, c)
		}
	}
	return all
}

func (s *subscription) pending() []*channel {
	return s.channels(func(c *channel) bool { return c.status() == undecided })
}

// channel returns the channel of that name, nil if s does not have it.
func (s *subscription) channel(name string) *channel {
	s.listener.mu.Lock()
	defer s.listener.mu.Unlock()
	if c := s.listener.channels[name]; c != nil && c.subscription == s {
		return c
	}
	return nil
}

// isAwaited reports whether somebody waits for a message on one of the channels of s.
func (s *subscription) isAwaited() bool {
	s.listener.mu.Lock()
	defer s.listener.mu.Unlock()
	for _, w := range s.listener.waiters {
		if c := s.listener.channels[w.channel]; c != nil && c.subscription == s {
			return true
		}
	}
	return false
}

func (s *subscription) close() {
	s.stop()
	_ = s.ps.Close() // a read that waits ends only with its connection
	<-s.done
}

// receive takes in messages until the connection ends.
func (s *subscription) receive() {
	defer close(s.done)
	go s.probe()
	for s.ctx.Err() == nil {
		var m any
		err := guard(func() (err error) {
			m, err = s.ps.ReceiveTimeout(s.ctx, 0)
			return err
		})
		if _, isReply := replyOf(err); err != nil && !isReply {
			break
		}
		if err != nil {
			if !s.refused(err) {
				break
			}
			continue
		}
		s.received.Add(1)
		s.handle(m)
	}
	s.stop()
	_ = s.ps.Close()
	l := s.listener
	l.mu.Lock()
	if l.subscriptions[s.node] == s {
		delete(l.subscriptions, s.node)
	}
	l.mu.Unlock()
	l.move(s.channels(func(*channel) bool { return true }))
}

func (s *subscription) handle(m any) {
	switch m := m.(type) {
	case *redis.Message:
		s.listener.dispatch(m.Payload)
	case *redis.Subscription:
		if m.Kind == "subscribe" || m.Kind == "ssubscribe" {
			if c := s.channel(m.Channel); c != nil {
				c.acknowledge()
			}
		} else if c := s.channel(m.Channel); c != nil { // the slot has gone elsewhere
			s.listener.move([]*channel{c})
		}
	}
}

// refused takes an error, which does not say what it is about: it is one of the
// channels that are not acknowledged. It reports false if there is none.
func (s *subscription) refused(err error) bool {
	pending := s.pending()
	if !isRefused(err) {
		s.listener.move(pending)
	} else {
		for _, c := range pending {
			c.deny(err)
		}
	}
	return len(pending) > 0
}

// probe ends the connection if nothing comes through, not even the answer to PING,
// while somebody waits for a message. It also does so if only the answer to what was
// subscribed does not come: the client library loses what it sends as the server has it
// move to another connection, and reports no error.
func (s *subscription) probe() {
	t := time.NewTicker(s.listener.probing)
	defer t.Stop()
	isAsked, last, unanswered := false, int64(0), []*channel(nil)
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-t.C:
		}
		n, pending := s.received.Load(), s.pending()
		isSilent := n == last && (len(pending) > 0 || s.isAwaited())
		isLost := n != last && slices.ContainsFunc(pending, func(c *channel) bool { return slices.Contains(unanswered, c) })
		if isSilent && isAsked || isLost {
			_ = s.ps.Close()
			return
		}
		if isAsked, last, unanswered = isSilent, n, pending; isSilent {
			s.write(func() error { return s.ps.Ping(s.ctx) })
		}
	}
}
