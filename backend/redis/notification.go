package redis

import (
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
)

// A listener takes in what the server tells a client unasked, and passes it to the
// waiter or the hold that it concerns. One channel serves all locks of a
// client; on a cluster each lock that it waits for has one.
type listener struct {
	client      redis.UniversalClient
	cluster     *cluster // nil unless it is one
	log         *slog.Logger
	pollOnly    bool                   // no subscription is wanted
	onUnclaimed func(k key, id string) // called for a grant that nobody waits for
	warned      sync.Once
	probing     time.Duration // as of probeInterval

	mu            sync.Mutex
	closed        bool
	waiters       map[string]*waiter              // by the open part of their ids
	holds         map[string]*holdState           // likewise
	early         map[digest]word                 // about holds that are not known yet, as of maxEarly
	channels      map[string]*channel             // by name
	subscriptions map[*redis.Client]*subscription // by node
	swept         int                             // how many channels there were after the last sweep
	moving        sync.WaitGroup                  // channels on their way to a subscription
}

func newListener(client redis.UniversalClient, c *cluster, log *slog.Logger, pollOnly bool) *listener {
	return &listener{
		client:        client,
		cluster:       c,
		log:           log,
		pollOnly:      pollOnly,
		probing:       probeInterval,
		waiters:       make(map[string]*waiter),
		holds:         make(map[string]*holdState),
		early:         make(map[digest]word),
		channels:      make(map[string]*channel),
		subscriptions: make(map[*redis.Client]*subscription),
	}
}

// A waiter is one entry of an Acquire into the queue, which may be told something.
type waiter struct {
	key     key
	id      string
	channel string        // its name
	grants  chan grant    // receives the grant of its id
	wakeUps chan struct{} // receives when it should ask the server
	hinted  time.Time     // when a message last has it ask. Guarded by listener.mu
}

// hintInterval is how often a message may have a waiter ask. It could be sent again and
// again.
const hintInterval = 250 * time.Millisecond

func newWaiter(k key, id, channel string) *waiter {
	return &waiter{key: k, id: id, channel: channel, grants: make(chan grant, 1), wakeUps: make(chan struct{}, 1)}
}

func (w *waiter) wakeUp() {
	select {
	case w.wakeUps <- struct{}{}:
	default:
	}
}

// addWaiter has messages for the id of w go to it until removeWaiter or addHold. It must come
// before what is sent whose grant may be told.
func (l *listener) addWaiter(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiters[openPart(w.id)] = w
}

// removeWaiter has a grant of id be one that nobody waits for.
func (l *listener) removeWaiter(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.waiters, openPart(id))
}

// addHold has messages for the id of s go to the hold. It reports whether one has come
// already, ahead of the grant, that somebody waits behind it, or has taken it away.
func (l *listener) addHold(s *holdState) (isWanted, isBroken bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	open := openPart(s.id)
	delete(l.waiters, open)
	l.holds[open] = s
	if len(l.early) == 0 {
		return false, false
	}
	d := digestOf(s.id)
	w := l.early[d]
	delete(l.early, d)
	return w == saysWanted, w == saysBroken
}

func (l *listener) removeHold(s *holdState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.holds, openPart(s.id))
}

func (l *listener) allHolds() []*backend.Hold {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]*backend.Hold, 0, len(l.holds))
	for _, s := range l.holds {
		all = append(all, s.hold)
	}
	return all
}

// wakeWaiters has every waiter on a channel ask the server: a message may have been
// missed, as long as there was no subscription.
func (l *listener) wakeWaiters(channel string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.waiters {
		if w.channel == channel {
			w.wakeUp()
		}
	}
}

// dispatch passes a message on. Whoever may publish can send one: it is of no use
// unless it shows that its sender has read, in the keys, an id of this client.
func (l *listener) dispatch(payload string) {
	what, about, _ := strings.Cut(payload, " ")
	if open, d, ok := parseHint(about); ok {
		l.hinted(what, open, d)
	} else if k, g, ok := parseGrant(payload); ok {
		l.granted(k, g)
	}
}

// hinted takes a message about an id of this client, if it is one.
func (l *listener) hinted(what, open string, d digest) {
	switch what {
	case "poll":
		l.poll(open, d)
	case "contended":
		if s := l.holdOf(open, d, saysWanted); s != nil {
			s.wanted()
		}
	case "broken":
		if s := l.holdOf(open, d, saysBroken); s != nil {
			s.hold.Lost(backend.ErrBroken)
		}
	}
}

// A word is what a message says of a hold. It may be faster than the grant, which comes on
// another connection or has to be confirmed: it is kept for addHold then. Nothing comes after saysBroken.
type word uint8

const (
	_          word = iota
	saysWanted      // somebody waits for the lock
	saysBroken      // somebody has taken the hold away
)

// maxEarly is how many words about holds that are not known are kept. Most of those holds
// are over; who may publish can send any number. Nothing of a message is kept but its digest:
// it may be long.
const maxEarly = 256

// holdOf returns the hold that a message is about; nil if there is none, or none yet.
func (l *listener) holdOf(open string, d digest, w word) *holdState {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.holds[open]
	if s == nil {
		w = max(w, l.early[d])
		if len(l.early) == maxEarly {
			clear(l.early)
		}
		l.early[d] = w
		return nil
	}
	if digestOf(s.id) != d {
		return nil
	}
	return s
}

// poll takes the message that a waiter should ask the server. One that comes soon after another
// may be the last: it is heeded, a little later.
func (l *listener) poll(open string, d digest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.waiters[open]
	if w == nil || digestOf(w.id) != d || time.Until(w.hinted) > 0 {
		return
	}
	after := max(hintInterval-time.Since(w.hinted), 0)
	w.hinted = time.Now().Add(after)
	time.AfterFunc(after, w.wakeUp)
}

// granted takes the message of a grant. An id is let in at another lock than its own where somebody has copied a
// queue, or renamed it: that is no grant.
func (l *listener) granted(k key, g grant) {
	l.mu.Lock()
	open := openPart(g.id)
	w, s := l.waiters[open], l.holds[open]
	isHeld := s != nil && s.id == g.id
	if w != nil && (w.id != g.id || w.key != k) {
		w = nil
	}
	if w != nil {
		g.id = w.id // no part of the message
		select {
		case w.grants <- g:
		default: // of the same id: that is enough
		}
	}
	l.mu.Unlock()
	if w == nil && !isHeld {
		l.onUnclaimed(k, g.id)
	}
}
