package simulation

import (
	"slices"
	"time"

	"github.com/dlock-go/dlock/backend/redis"
)

// A burden is what a client asks of one server, beyond what it may.
type burden struct {
	asked  float64 // commands, refused ones too, but for those by which a connection begins
	dialed float64 // attempts to connect
	told   bool    // it was reported
}

type flight struct{ client, server int }

// A work is a call that has begun, about so many locks.
type work struct {
	at    time.Time
	locks int
}

// came takes a command of a client.
func (r *register) came(s *server, client string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := r.w.indexOf(client); i >= 0 {
		r.burdenOf(i, s.index).asked++
	}
}

// dials takes an attempt of a client to connect.
func (r *register) dials(client, server int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.burdenOf(client, server).dialed++
	r.dialed[client] = time.Now()
}

// isReady takes a client that makes a connection ready. The client library may have connected long before, for
// a call that was over by then.
func (s *server) isReady(client string) {
	if s.world == nil {
		return
	}
	r := s.world.reg
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dialed[r.w.indexOf(client)] = time.Now()
}

// lots is about how many locks a call has to do with. Names asks for each page and after each key that it meets, and
// who examines the servers of a quorum leaves one at each, for as long as keys stay.
func (r *register) lots(c *call) int {
	n := len(c.names)
	switch c.what {
	case "examine":
		r.examined++
	case "names":
		n += r.examined/int(mayAsk.begun/2) + r.w.plan.Pages/int(mayAsk.begun)
	}
	return n
}

func (r *register) burdenOf(client, server int) *burden {
	f := flight{client, server}
	b := r.burdens[f]
	if b == nil {
		b = new(burden)
		r.burdens[f] = b
	}
	return b
}

// What a client may ask of a server, and for how many connections, whatever goes wrong: so much
// in a second, and so much more for each lock of a call that has begun in this second, of one
// that is under way, of one that is over and may have left something to be given back, and for
// each lease in the time of the shortest; in that a lock may also be granted to who waits, run
// out before that is known, and be asked for again. Where a call limits a hold to less than it takes to hear of it, its
// client asks in each round trip, and so does each that has let go of the lock, and looks after it once a lease. No
// documentation says such numbers. Pauses
// between attempts grow to between half a second and a second, an attempt is up to three
// commands and may need a connection of its own, and not every call leaves something. What has
// gathered while a server was silent comes at once.
var (
	mayAsk  = allowance{gathered: 400, always: 20, begun: 12, open: 10, over: 2, again: 4, vain: 3, lease: 30}
	mayDial = allowance{gathered: 200, always: 10, begun: 12, open: 5, over: 1, again: 2, lease: 10}
)

// An allowance is in pieces a second, but for what may have gathered.
type allowance struct{ gathered, always, begun, open, over, again, vain, lease float64 }

// mostConnections is how many a client has to one server: those of the pool of the client
// library, twice as many where they are given up and made at one moment, and subscriptions.
const mostConnections = 24

// remembered is for how long a client tells a server to forget what it has given up, and
// more than its lease.
const remembered = 30 * time.Second

// bears checks that no client asks a server for more than that can bear, at any time and
// whatever goes wrong. Requests are few says how few they are where nothing does.
func (r *register) bears(passed time.Duration) {
	longer := 1.0 // where servers are silent for longer
	if r.w.plan.Length > 2*time.Minute {
		longer = 2
	}
	for i := range r.w.plan.Clients {
		if r.dead[i] { // no process asks any more
			continue
		}
		var l load
		if r.isBurden(i) {
			l = r.loadOf(i)
		}
		for _, s := range r.w.nodes {
			b := r.burdenOf(i, s.index)
			// Many calls that fail at once ask more a moment later than as they begin.
			least := -mayAsk.begun * l.recent
			if r.wasSilent(i, s.index) {
				least = min(least, -mayAsk.gathered)
			}
			b.asked = max(least, b.asked-mayAsk.within(passed, l))
			b.dialed = max(-mayDial.begun*l.recent, b.dialed-mayDial.within(passed, l))
			n := r.w.net.way(i, s.index).tooMany()
			if b.asked < mayAsk.gathered*max(longer, r.w.plan.gathers()) && b.dialed < mayDial.gathered*longer && n == 0 || b.told {
				continue
			}
			b.told = true
			r.violate("a server can bear it", "c%d at s%d: %.0f commands and %.0f attempts to connect more than it may, and %d connections; %+v", i, s.index, b.asked, b.dialed, n, l)
		}
	}
}

// wasSilent reports whether a server took nothing that a client sent to it, until a moment ago: what is sent
// meanwhile comes at once then, and is what may have been sent in all that time.
func (r *register) wasSilent(client, server int) bool {
	return slices.ContainsFunc(r.touches, func(t touched) bool {
		return (t.kind == "pause" || t.kind == "hole") && (t.client < 0 || t.client == client) &&
			(t.server == server || t.server == everywhere) && time.Since(t.to) < time.Second
	})
}

// isBurden reports whether a client has begun anything a moment ago, or asked a server for what is
// not made up for.
func (r *register) isBurden(client int) bool {
	works := r.works[client]
	return len(works) > 0 && time.Since(works[len(works)-1].at) < time.Second || slices.ContainsFunc(r.w.nodes, func(s *server) bool {
		b := r.burdenOf(client, s.index)
		return b.asked > 0 || b.dialed > 0
	})
}

// A load is what a client has to do.
type load struct{ begun, recent, open, over, again, vain, leases float64 }

// loadOf counts what a client has begun since the last look, and what it has still to do.
func (r *register) loadOf(client int) (l load) {
	now := time.Now()
	forgotten := now.Add(-longestTTL(r.w.plan.TTL) - remembered)
	works := r.works[client]
	for len(works) > 0 && works[0].at.Before(forgotten) {
		works = works[1:]
	}
	r.works[client] = works
	lastLook, lastSecond := now.Add(-r.tick), now.Add(-time.Second)
	for _, w := range works {
		l.over += float64(w.locks)
		if w.at.After(lastLook) {
			l.begun += float64(w.locks)
		}
		if w.at.After(lastSecond) {
			l.recent += float64(w.locks)
		}
	}
	for c := range r.calls {
		if r.w.plan.hostOf(c.client) == client {
			l.open += float64(len(c.names)) * r.rounds(client)
			l.again += float64(len(c.names)) / r.least.Seconds()
		}
		if c.inVain && c.waits {
			l.vain += float64(len(c.names)) / (2 * r.w.plan.nearest()).Seconds()
		}
	}
	for _, b := range r.beliefs {
		if r.w.plan.hostOf(b.client) == client {
			l.leases += 1 / min(r.least.Seconds(), b.ttl.Seconds())
		}
	}
	return l
}

// rounds is by how much more a call has to do on a quorum: it votes three or four times a second
// while others have the lock, and of each vote that a silent server leaves in doubt that server
// is told until it answers. So after an outage of 20 s two calls ask 60 times a second of a
// server that refuses. A client without a subscription asks 20 times a second, or as often as the plan
// says, and where replicas are asked as often for their word.
func (r *register) rounds(client int) float64 {
	p, rounds := r.w.plan, 2.0
	switch {
	case p.Backend == "quorum":
		rounds = 6
	case p.listens(client):
		rounds = 1
	case p.Acks && !p.Clients[client].Careless:
		rounds = 4
	}
	if p.Interval > 0 {
		rounds *= max(1, redis.DefaultPoll.Seconds()/p.Interval.Seconds())
	}
	return rounds
}

// within is what a client with that load may ask for in a time.
func (a allowance) within(d time.Duration, l load) float64 {
	return a.begun*l.begun + d.Seconds()*(a.always+a.open*l.open+a.over*l.over+a.again*l.again+a.vain*l.vain+a.lease*l.leases)
}

// tooMany is how many connections a client has open, as far as it knows, and 0 if they are no more
// than it may have.
func (w *way) tooMany() int {
	if n := w.tidy(); n > mostConnections {
		return n
	}
	return 0
}

// tidy forgets connections that are over for both sides, if there are many, and says how many a client has open, as
// far as it knows, or 0 if there are few.
func (w *way) tidy() (n int) {
	w.net.mu.Lock()
	if len(w.links) <= mostConnections {
		w.net.mu.Unlock()
		return 0
	}
	links := w.open()
	w.net.mu.Unlock()
	for _, l := range links {
		switch {
		case !l.client.in.isOver():
			n++
		case l.server.in.isOver():
			w.net.mu.Lock()
			delete(w.links, l)
			w.net.mu.Unlock()
		}
	}
	return n
}

func (p *pipe) isOver() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err != nil
}
