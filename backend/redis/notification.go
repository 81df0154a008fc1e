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
	early         map[string]earlyWord            // about holds that are not known yet, as of maxEarly
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
		early:         make(map[string]earlyWord),
		channels:      make(map[string]*channel),
		subscriptions: make(map[*redis.Client]*subscription),
	}
}

// A waiter is one entry of an Acquire into the queue, which may be told something.
type waiter struct {
	id      string
	channel string        // its name
	grants  chan grant    // receives the grant of its id
	wakeUps chan struct{} // receives when it should ask the server
	hinted  time.Time     // when a message last has it ask. Guarded by listener.mu
}

// hintInterval is how often a message may have a waiter ask. It could be sent again and
// again.
const hintInterval = 250 * time.Millisecond

func newWaiter(id, channel string) *waiter {
	return &waiter{id: id, channel: channel, grants: make(chan grant, 1), wakeUps: make(chan struct{}, 1)}
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
	word, found := l.early[open]
	delete(l.early, open)
	if !found || !isDigest(word.digest, s.id) {
		return false, false
	}
	return !word.isBroken, word.isBroken
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
	if hint, ok := strings.CutPrefix(payload, "contended "); ok {
		l.contended(parseHint(hint))
	} else if hint, ok := strings.CutPrefix(payload, "poll "); ok {
		l.poll(parseHint(hint))
	} else if hint, ok := strings.CutPrefix(payload, "broken "); ok {
		l.broken(parseHint(hint))
	} else if k, g, ok := parseGrant(payload); ok {
		l.granted(k, g)
	}
}

// maxEarly is how many messages about holds that are not known are kept. Most of those
// are over; who may publish can send any number.
const maxEarly = 256

// An earlyWord is a message about a hold that is faster than the grant, which comes on another
// connection or has to be confirmed. It is kept for addHold.
type earlyWord struct {
	digest   string
	isBroken bool // somebody has taken the hold away, or else somebody waits behind it
}

// contended takes the message that somebody waits for a lock.
func (l *listener) contended(open, digest string) {
	if s := l.hinted(open, earlyWord{digest, false}); s != nil {
		s.wanted()
	}
}

// broken takes the message that a hold was taken away.
func (l *listener) broken(open, digest string) {
	if s := l.hinted(open, earlyWord{digest, true}); s != nil {
		s.hold.Lost(backend.ErrBroken)
	}
}

// hinted returns the hold that a message is about; nil if there is none, or none yet.
func (l *listener) hinted(open string, word earlyWord) *holdState {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.holds[open]
	if s == nil && l.early[open] != (earlyWord{word.digest, true}) { // nothing comes after that
		if len(l.early) == maxEarly {
			clear(l.early)
		}
		l.early[open] = word
	}
	if s == nil || !isDigest(word.digest, s.id) {
		return nil
	}
	return s
}

// poll takes the message that a waiter should ask the server. One that comes soon after another
// may be the last: it is heeded, a little later.
func (l *listener) poll(open, digest string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.waiters[open]
	if w == nil || !isDigest(digest, w.id) || time.Until(w.hinted) > 0 {
		return
	}
	after := max(hintInterval-time.Since(w.hinted), 0)
	w.hinted = time.Now().Add(after)
	time.AfterFunc(after, w.wakeUp)
}

// granted takes the message of a grant.
func (l *listener) granted(k key, g grant) {
	l.mu.Lock()
	open := openPart(g.id)
	w, s := l.waiters[open], l.holds[open]
	isHeld := s != nil && s.id == g.id
	if w != nil && w.id != g.id {
		w = nil
	}
	if w != nil {
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
