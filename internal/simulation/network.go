package simulation

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"time"
)

var errRefused = errors.New("connection refused")

// A network connects clients with servers. What happens to a connection depends on
// the way, of which there is one for each pair.
type network struct {
	mu   sync.Mutex
	rnd  *rand.Rand
	ways map[pair]*way

	forgets time.Duration // after what time a connection that is idle is forgotten; 0: never
	forgot  func(p pair, subscribed bool)
	ends    time.Duration // after what time servers end a connection that is idle; 0: never

	dials   func(client, server int) // called for each attempt to connect
	comesTo func(point)              // called by a client that sends and reads
}

type pair struct{ client, server int }

// direction says which way bytes go.
type direction int

const (
	up   direction = iota // to the server
	down                  // to the client
)

// A way is what lies between a client and a server.
type way struct {
	net    *network
	pair   pair
	base   time.Duration // one way
	jitter time.Duration

	extra   [2]time.Duration // by direction
	rate    [2]int           // bytes a second; 0: no limit
	held    [2]time.Time     // nothing arrives before that
	refuses time.Time        // no connection until then
	deaf    time.Time        // messages of subscriptions are lost until then
	links   map[*link]bool
	torn    tearing
	race    race

	unanswered int // of how many scripts the answers will be lost
}

// A link is one connection.
type link struct {
	way            *way
	client, server *conn
	lost           [2]bool // what is written in that direction vanishes
	quick          bool    // it takes no time yet
	subscribed     bool
	unnoticed      bool             // it is forgotten, and nothing was sent on it since
	number         int              // of those of its way
	dialed         [2]time.Time     // when its client began to connect, and had
	written        time.Time        // when its client last wrote to it
	replied        time.Time        // when its server last did
	holds          []string         // what it was last asked about
	extra          [2]time.Duration // by direction, likewise
	held           [2]time.Time
}

func newNetwork(seed uint64) *network {
	return &network{rnd: rand.New(rand.NewPCG(seed, 1)), ways: make(map[pair]*way), dials: func(int, int) {}, comesTo: func(point) {}}
}

func (n *network) way(client, server int) *way {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := pair{client, server}
	w := n.ways[p]
	if w == nil {
		w = &way{net: n, pair: p, base: time.Millisecond, links: make(map[*link]bool)}
		n.ways[p] = w
	}
	return w
}

// draws returns a number below less.
func (n *network) draws(less int) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.rnd.IntN(less)
}

// tail is by how much more the jitter of one in a hundred is.
const tail = 10

// latency is how long n bytes take that leave now.
func (w *way) latency(d direction, n int) time.Duration {
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	l := w.base + w.extra[d]
	if w.jitter > 0 {
		j := time.Duration(w.net.rnd.Int64N(int64(w.jitter) + 1))
		if w.net.rnd.IntN(100) == 0 {
			j *= tail
		}
		l += j
	}
	if w.rate[d] > 0 {
		l += time.Duration(n) * time.Second / time.Duration(w.rate[d])
	}
	return l
}

func (w *way) heldUntil(d direction) time.Time {
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	return w.held[d]
}

// change changes w, and lets readers look again at what is due.
func (w *way) change(f func()) {
	w.net.mu.Lock()
	f()
	links := w.open()
	w.net.mu.Unlock()
	for _, l := range links {
		l.client.in.poke()
		l.server.in.poke()
	}
}

func (w *way) open() []*link {
	var all []*link
	for l := range w.links {
		all = append(all, l)
	}
	return all
}

// reset breaks every connection, and both sides hear of it at once.
func (w *way) reset() {
	w.net.mu.Lock()
	links := w.open()
	w.net.mu.Unlock()
	for _, l := range links {
		for _, p := range []*pipe{l.client.in, l.server.in} {
			p.fail(errReset)
		}
	}
}

// halve has the server see the end of every connection, and the client nothing.
func (w *way) halve() {
	w.net.mu.Lock()
	links := w.open()
	for _, l := range links {
		l.lost = [2]bool{true, true}
	}
	w.net.mu.Unlock()
	for _, l := range links {
		l.server.in.fail(errReset)
	}
}

// forsake ends every connection for the client, and the server does not hear of it.
func (w *way) forsake() {
	w.net.mu.Lock()
	links := w.open()
	for _, l := range links {
		l.lost = [2]bool{true, true}
	}
	w.net.mu.Unlock()
	for _, l := range links {
		l.client.in.fail(errReset)
	}
}

// mute has the subscriptions there are get nothing any more, as where something between
// has forgotten them.
func (w *way) mute() {
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	for l := range w.links {
		if l.subscribed {
			l.lost[down] = true
		}
	}
}

func (l *link) isQuick() bool {
	l.way.net.mu.Lock()
	defer l.way.net.mu.Unlock()
	return l.quick
}

func (l *link) latency(d direction, n int) time.Duration {
	if l.isQuick() {
		return 0
	}
	return l.way.latency(d, n) + l.lateness(d)
}

func (l *link) heldUntil(d direction) time.Time {
	if l.isQuick() {
		return time.Time{}
	}
	return later(l.way.heldUntil(d), l.stalled(d))
}

// How the names of commands and of messages end, of shards too.
var subscribes, message = []byte("subscribe\r\n"), []byte("message\r\n")

// drops reports whether what is written to l gets lost; nil is the end.
func (l *link) drops(d direction, b []byte) bool {
	l.way.net.mu.Lock()
	defer l.way.net.mu.Unlock()
	now := time.Now()
	if l.quick && bytes.Contains(b, subscribes) {
		l.quick, l.subscribed = false, true
	}
	if l.isForgotten(now) {
		l.lost, l.unnoticed = [2]bool{true, true}, true
	}
	if l.unnoticed && b != nil {
		l.notices()
	}
	if d == up {
		l.overtake(now, b)
		l.written = now
	} else {
		l.replied = now
	}
	if l.lost[d] {
		return true
	}
	return d == down && b != nil && now.Before(l.way.deaf) && bytes.Contains(b, message)
}

// dialing bounds an attempt to connect, as the client library does it.
const dialing = 5 * time.Second

// dial connects a client with a server. The client library connects a subscription with
// a mutex held. Virtual time stands still while somebody waits for a mutex, so that one
// takes no time, and fails at once if it would have to.
func (n *network) dial(ctx context.Context, client int, s *server) (net.Conn, error) {
	n.dials(client, s.index)
	w, began := n.way(client, s.index), time.Now()
	quick := isSubscription()
	if !quick {
		if err := w.reach(ctx); err != nil {
			return nil, err
		}
	}
	n.mu.Lock()
	now := time.Now()
	refused := now.Before(w.refuses) || quick && (now.Before(w.held[up]) || now.Before(w.held[down]))
	n.mu.Unlock()
	closed, says := s.turnsAway() // who hears why tries again, after a pause
	if refused || closed || quick && says || !s.accepts() {
		return nil, errRefused
	}
	l := w.connect(quick, s.address())
	n.mu.Lock()
	l.dialed[0] = began
	n.mu.Unlock()
	outside(func() {
		s.serve(l.server)
		l.endsIdle(n.ends)
	})
	return l.client, nil
}

// isSubscription reports whether the caller connects for a subscription.
func isSubscription() bool {
	var callers [40]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers[:])])
	for {
		f, more := frames.Next()
		if strings.Contains(f.Function, "(*PubSub)") {
			return true
		}
		if !more {
			return false
		}
	}
}

// reach waits for as long as it takes to connect.
func (w *way) reach(ctx context.Context) error {
	end := time.Now().Add(dialing)
	if err := sleep(ctx, w.latency(up, 0)+w.latency(down, 0)); err != nil {
		return err
	}
	for {
		now := time.Now()
		held := later(w.heldUntil(up), w.heldUntil(down))
		switch {
		case !now.Before(end):
			return errors.New("i/o timeout")
		case !held.After(now):
			return nil
		case held.After(end):
			held = end
		}
		if err := sleep(ctx, held.Sub(now)); err != nil {
			return err
		}
	}
}

func (w *way) connect(quick bool, to string) *link {
	l := &link{way: w, quick: quick, dialed: [2]time.Time{time.Now(), time.Now()}}
	there, back := newPipe(), newPipe()
	for d, p := range []*pipe{there, back} {
		d := direction(d)
		p.delay = func(n int) time.Duration { return l.latency(d, n) }
		p.held = func() time.Time { return l.heldUntil(d) }
		p.drop = func(b []byte) bool { return l.drops(d, b) }
		p.tears = func(b []byte) (int, bool) { return l.tears(d, b) }
		p.torn = l.breaks
		p.late = func() bool { return w.net.draws(2) == 0 }
	}
	l.client = &conn{in: back, out: there, addr: address(to), link: l, comesTo: w.net.comesTo}
	l.server = &conn{in: there, out: back, addr: "10.0.2.1:1", link: l, comesTo: func(point) {}}
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	l.number = len(w.links)
	w.links[l] = true
	return l
}

// shut ends what is left of all connections.
func (n *network) shut() {
	n.mu.Lock()
	var all []*way
	for _, w := range n.ways {
		all = append(all, w)
	}
	n.mu.Unlock()
	for _, w := range all {
		w.reset()
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
