package simulation

import (
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
)

// A call is in order where nothing goes wrong, its client has nothing else to do, and nobody else
// asks for its locks. Then it takes as many requests and round trips as the documentation says.

// A passage is what was known as a call began.
type passage struct {
	asked   map[inquiry]int // scripts that its client had run
	stirred time.Time       // when one of its locks had last changed hands, or its queue had
	free    bool            // nobody had or wanted its locks, but those that it enters again
	queued  bool            // somebody waited at a server
	crowded bool            // its client has another call under way
	beside  bool            // there is another call about its locks
	sole    bool            // nobody else has ever asked for them
	outer   bool            // its client has another lease on one of them
	joins   bool            // it is that of a reader beside others of its client
	waits   awaiting
	heard   map[commanding]int // what its client had sent, where it is a question
}

// An inquiry is who asks which server about which lock.
type inquiry struct {
	client, server int
	name           string
}

// A traffic is what r knows of passages.
type traffic struct {
	open         map[*call]*passage
	asked        map[inquiry]int
	commands     map[commanding]int      // by which questions are asked
	dialed       map[int]time.Time       // when a client last connected, made a connection ready, or had to send a script itself
	stirred      map[string]time.Time    // when a lock last changed hands, or its queue did
	users        map[string]map[int]bool // who has ever asked for a lock
	untidy       map[string]time.Time    // when something about a lock was last not in order
	heldTo       map[party]bool          // the last call of a client for a lock was refused
	renews       map[party]time.Time     // when a client last renewed a lock
	full         map[party]time.Time     // when a client last asked for one in full, though it seemed to be free
	run          map[int]string          // by server: the script under way
	turns        map[party]time.Time     // when a break has let in who was next
	minimal      map[party]time.Time     // when a client last gave up a lock that has a minimum hold
	entries      map[string][]entering   // how often holders have entered a lock
	ended        map[party]time.Time     // when a call of a client about a lock was last over
	passings     map[party]*succession   // what an Unlock has to pass on
	listens      map[party]time.Time     // since when a client has been seen to listen, in a cluster for that lock
	grabs        map[party]int           // scripts that only take a lock
	hints        map[int]int             // messages that tell a client that it is the first
	ending       map[string]int          // how many holds of a lock have been about to end by themselves
	letIn        map[party]time.Time     // when a client was let in that had queued
	ranOut       map[party]bool          // as the hold before had run out
	unsettled    map[party]time.Time     // when a call of a client last ended that may leave something to be done
	lastAsked    map[party]time.Time     // when a client last asked about a lock
	means        map[int]mean            // by client of a quorum, of free locks
	handOvers    map[int]mean            // likewise, of those that were waited for
	toldOf       map[int]time.Time       // when a question of a client was first answered
	leftUntold   map[int]time.Time       // when one last ended without its answer
	byItself     map[int]time.Time       // when a client last had a script run that no call waits for
	wantedAtOnce map[party]bool          // its hold is one of which it hears at once who wants it
}

func newTraffic() traffic {
	return traffic{
		open:         make(map[*call]*passage),
		asked:        make(map[inquiry]int),
		commands:     make(map[commanding]int),
		dialed:       make(map[int]time.Time),
		stirred:      make(map[string]time.Time),
		users:        make(map[string]map[int]bool),
		untidy:       make(map[string]time.Time),
		heldTo:       make(map[party]bool),
		renews:       make(map[party]time.Time),
		full:         make(map[party]time.Time),
		run:          make(map[int]string),
		turns:        make(map[party]time.Time),
		minimal:      make(map[party]time.Time),
		entries:      make(map[string][]entering),
		ended:        make(map[party]time.Time),
		passings:     make(map[party]*succession),
		listens:      make(map[party]time.Time),
		wantedAtOnce: make(map[party]bool),
		means:        make(map[int]mean),
		handOvers:    make(map[int]mean),
		toldOf:       make(map[int]time.Time),
		leftUntold:   make(map[int]time.Time),
		byItself:     make(map[int]time.Time),
		grabs:        make(map[party]int),
		hints:        make(map[int]int),
		ending:       make(map[string]int),
		letIn:        make(map[party]time.Time),
		ranOut:       make(map[party]bool),
		lastAsked:    make(map[party]time.Time),
		unsettled:    make(map[party]time.Time),
	}
}

// background are scripts that clients run by themselves, by how they begin.
var background = []string{"-- Looks after a lock that a client has let go of"}

// ran takes a script that a client runs at a server, and one that the server does not know.
func (r *register) ran(s *server, client, source string, keys []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := r.w.indexOf(client)
	r.run[s.index] = source
	if strings.HasPrefix(source, inspector) {
		r.commands[commanding{flight{i, s.index}, inspector}]++
	}
	renews := strings.HasPrefix(source, tellers["renew"])
	looks := slices.ContainsFunc(background, func(begin string) bool { return strings.HasPrefix(source, begin) })
	if renews || looks {
		r.byItself[i] = time.Now()
	}
	switch {
	case source == "":
		r.dialed[i] = time.Now()
	case renews:
		for _, name := range locksOf(keys) {
			r.renews[party{i, name}] = time.Now()
		}
	case i >= 0 && !looks:
		for _, name := range locksOf(keys) {
			r.asked[inquiry{i, s.index, name}]++
			r.lastAsked[party{i, name}] = time.Now()
			if strings.HasPrefix(source, grabber) {
				r.grabs[party{i, name}]++
			}
		}
	}
}

// stirs takes a change of the state of a lock at a server.
func (r *register) stirs(name string, old, t truth) {
	a, b := old.holders(), t.holders()
	slices.Sort(a)
	slices.Sort(b)
	if !slices.Equal(a, b) || !slices.Equal(old.queue, t.queue) {
		r.stirred[name] = time.Now()
	}
}

// setsOut notes a call that begins.
func (r *register) setsOut(c *call) {
	c.entered = make(map[string]bool)
	p := &passage{asked: make(map[inquiry]int), free: true, sole: true, crowded: r.w.plan.isShared(c.client) || r.isLeaving(c.client)}
	for i, n := range r.asked {
		if i.client == c.client && slices.Contains(c.names, i.name) {
			p.asked[i] = n
		}
	}
	for o, q := range r.open {
		if o.client == c.client {
			p.crowded, q.crowded = true, true
		}
		if !o.asks && !c.asks && slices.ContainsFunc(o.names, func(n string) bool { return slices.Contains(c.names, n) }) {
			p.beside, q.beside = true, true
		}
	}
	for _, n := range c.names {
		if !c.asks {
			if r.users[n] == nil {
				r.users[n] = make(map[int]bool)
			}
			r.users[n][c.client] = true
		}
		p.stirred, p.sole = later(p.stirred, r.stirred[n]), p.sole && len(r.users[n]) == 1
		if c.within.find(c.client, n, 0) != nil {
			c.entered[n] = true
		}
		for _, s := range r.w.masters() {
			t := r.lock(n).last[s.index].asOf(s.clock().UnixMilli())
			p.free, p.queued = p.free && (c.entered[n] || !t.held() && len(t.queue) == 0), p.queued || len(t.queue) > 0
		}
	}
	p.outer = c.nested && slices.ContainsFunc(r.beliefs, func(b *belief) bool { return b.client == c.client && slices.Contains(c.names, b.name) })
	p.joins, p.waits = r.joinsOwn(c), r.waitsFor(c)
	if c.asks {
		p.heard = maps.Clone(r.commands)
	}
	r.open[c] = p
}

// isLeaving reports whether the one connection of a client may be in use by a call that is over: its place in
// a queue is given back, or the last member of a quorum has yet to answer, and another one is refused at once.
func (r *register) isLeaving(client int) bool {
	since := time.Now().Add(-2 * r.w.plan.trip())
	return r.w.plan.hasOneConnection(client) && slices.ContainsFunc(r.w.names(), func(n string) bool {
		p := party{client, n}
		return r.refused[p].After(since) || r.w.plan.Backend == "quorum" && r.isLimited(client) && r.ended[p].After(since)
	})
}

// trip is how long it takes there and back to the server that is farthest away.
func (p *Plan) trip() time.Duration {
	trip := 2 * (p.Latency + p.Far)
	if p.Acks {
		trip += 2 * p.Lag
	}
	return trip
}

// arrives checks how many requests, and how long, a call has taken that is over.
func (r *register) arrives(c *call, err error) {
	p := r.open[c]
	delete(r.open, c)
	r.isPassed(c, p, err)
	if p == nil || !r.w.hasServers() {
		return
	}
	r.countsAnswers(c, p, err)
	r.countsWaits(c, p, err)
	tidy, kind := p.isTidy(c, err), p.kind(c, err)
	if tidy && kind != "" && r.isInOrder(c, p, kind) {
		r.coverage["in order × "+kind]++
		r.countsRounds(c, p, kind)
		r.countsTrips(c, p, kind)
	}
	for _, n := range c.names {
		r.ended[party{c.client, n}] = time.Now()
		if !tidy && !c.asks {
			r.untidy[n] = time.Now()
			r.unsettled[party{c.client, n}] = time.Now()
		}
		// Readers, and who is refused by its own client, ask nobody whether the lock is free.
		if refused := tidy && kind == "refused"; !refused || c.grabs() && r.hasAsked(c, p) {
			r.heldTo[party{c.client, n}] = refused
		}
	}
}

// hasAsked reports whether a call has asked a server.
func (r *register) hasAsked(c *call, p *passage) bool {
	for i, n := range r.asked {
		if i.client == c.client && slices.Contains(c.names, i.name) && n > p.asked[i] {
			return true
		}
	}
	return false
}

// isTidy reports whether nothing of a call is left to be done once it is over.
func (p *passage) isTidy(c *call, err error) bool {
	refused := errors.Is(err, dlock.ErrHeld) && !c.waits && len(c.names) == 1
	return !p.crowded && c.ctx.Err() == nil && !c.hurried && (err == nil || refused)
}

// kind is as what a call is counted, empty if it is not: as one of a lock that is free, that
// somebody has and goes on to have, or as one on a lease.
func (p *passage) kind(c *call, err error) string {
	switch {
	case c.asks, c.what == "lead":
	case err != nil && (c.what == "unlock" || c.what == "downgrade"):
	case err != nil:
		return "refused"
	case p.queued, p.beside:
	case c.what == "unlock", c.what == "downgrade":
		return c.what
	case len(c.entered) == len(c.names):
		return "entry"
	case p.free:
		return "free"
	}
	return ""
}

// isUntroubled reports whether nothing is wrong where a call was made and answered.
func (r *register) isUntroubled(c *call) bool {
	plan, trip := r.w.plan, r.w.plan.trip()
	served, known := r.served[c.client]
	if !known {
		served, known = r.toldOf[c.client]
	}
	switch {
	case r.dead[c.client], r.closing[c.client], r.stuttered(c.start), !known, served.After(c.start.Add(-lingers)):
		return false
	case plan.Clients[c.client].Hooks == "slow", plan.Clients[c.client].Hooks == "panic":
		return false
	case r.touched(c.client, c.start.Add(-2*longestTTL(plan.TTL)-2*lingers), whatever):
		return false
	case r.dialed[c.client].After(c.start.Add(-10 * trip)):
		return false
	case plan.hasOneConnection(c.client) && r.byItself[c.client].After(c.start.Add(-trip)): // it may be in use by that
		return false
	}
	return true
}

// isInOrder reports whether a call was made, and was answered, where nothing else happens.
func (r *register) isInOrder(c *call, p *passage, kind string) bool {
	settled := c.start.Add(-300*time.Millisecond - 20*r.w.plan.trip())
	return r.isUntroubled(c) && !r.mayHearOfLeft(c.client, c.start) && !slices.ContainsFunc(c.names, func(n string) bool {
		stirred := p.stirred
		if kind == "refused" {
			stirred = r.stirred[n]
		}
		return r.untidy[n].After(settled) || stirred.After(settled) || r.isBehind(c.client, n, c.start) || r.isSentOn(c.client, n)
	})
}

// isBehind reports whether a member of a quorum that is farther away than others may still have to come to
// what a call before has asked.
func (r *register) isBehind(client int, name string, since time.Time) bool {
	apart := r.w.plan.Backend == "quorum" && (r.w.plan.Far > 0 || r.w.plan.Jitter > 0 || len(r.w.plan.Distances) > 0)
	return apart && r.ended[party{client, name}].After(since.Add(-2*r.w.plan.slowest()))
}

// countsTrips checks a call that was in order.
func (r *register) countsTrips(c *call, p *passage, kind string) {
	if kind == "free" && r.w.plan.Backend == "quorum" && r.w.plan.clocksApart() {
		return // who proposes a token cannot know one that all take, and may raise theirs one after the other
	}
	most := r.inquiries(c, p, kind)
	for i, n := range r.asked {
		if i.client != c.client || !slices.Contains(c.names, i.name) {
			continue
		}
		n -= p.asked[i]
		if n > 1 {
			r.full[party{c.client, i.name}] = time.Now()
		}
		if n > most {
			r.violate("requests are exact", "c%d %s %v (%s) has asked s%d %d times, and may %d times", c.client, c.what, c.names, kind, i.server, n, most)
		}
	}
	if r.w.plan.Jitter > 0 {
		return
	}
	switch {
	case r.w.plan.needsAll(): // which are asked one after the other
		most *= r.w.plan.Servers
	case kind == "free" && r.w.plan.Backend == "quorum": // the front may be asked before the others
		most *= 2
	}
	trip := r.w.plan.trip()
	// Requests for several locks in a cluster leave on connections of their own, of which there may be too few.
	own := r.w.plan.Clients[c.client].Own
	narrow := own != nil && own.PoolSize > 0 && own.PoolSize < len(c.names)
	stays := func(n string) bool { return r.minimal[party{c.client, n}].After(c.start.Add(-trip)) }
	if c.what == "multi" || c.what == "trymulti" || c.what == "unlock" && (p.outer || narrow || slices.ContainsFunc(c.names, stays)) { // one after the other
		most *= len(c.names)
	}
	if slices.ContainsFunc(c.names, func(n string) bool { return r.renews[party{c.client, n}].After(c.start.Add(-trip)) }) {
		most++ // what is about a hold waits for a renewal of that
	}
	if took := time.Since(c.start); took > time.Duration(most)*trip+trip/4 {
		r.violate("trips are few", "c%d %s %v (%s) has taken %v, or %.1f round trips, and may take %d", c.client, c.what, c.names, kind, took, float64(took)/float64(trip), most)
	}
}

// inquiries is how often a call asks a server, and how many round trips it takes: one of each, and on a
// quorum one more for the token, or to give back what was granted beside a server at which others wait. Of a lock that was free when its client last had it a client asks
// first with a script that can do no more than take it, which is of no use if another one has the lock,
// or if its key has to be prolonged, or has something else to be looked after.
func (r *register) inquiries(c *call, p *passage, kind string) int {
	most := 1
	if quorum := r.w.plan.Backend == "quorum"; quorum && (kind == "free" || kind == "refused" && p.queued) {
		most++
	}
	if r.w.plan.Backend == "quorum" && kind == "free" && (r.w.plan.Jitter > 0 || len(r.w.plan.Skews) > 0 || len(r.w.plan.Distances) > 0) {
		most++ // who grants after a majority has, with a greater token, has the others be told that one too
	}
	if r.seemsFree(c, p, kind) {
		most++
	}
	return most
}

// seemsFree reports whether a call may ask in vain with that script first.
func (r *register) seemsFree(c *call, p *passage, kind string) bool {
	plain := func(n string) bool {
		// It has prolonged the key then, by a tenth of the time that it stays.
		prolonged := time.Since(r.full[party{c.client, n}]) < r.w.plan.keeps()/10
		return r.untidy[n].Before(c.start.Add(-refusing)) && p.sole && r.least == r.w.plan.TTL && prolonged
	}
	return slices.ContainsFunc(c.names, func(n string) bool {
		// Who is refused by the first of several servers learns nothing about the lock at the others.
		refused := r.heldTo[party{c.client, n}] && r.w.plan.Backend != "quorum"
		return !c.entered[n] && c.grabs() && (kind == "free" && !plain(n) || kind == "refused" && !refused)
	})
}

// clocksApart reports whether servers may have clocks that differ by more than what a proposed token may
// be ahead of a clock, which is 100 ms, or nearly so.
func (p *Plan) clocksApart() bool {
	const near = 50 * time.Millisecond
	set := func(f Fault) bool { return f.Kind == "nudge" || strings.HasPrefix(f.Kind, "clock-") }
	fast := math.Abs(p.Drift)
	for _, d := range p.Drifts {
		fast = max(fast, math.Abs(d))
	}
	apart := 2 * time.Duration(fast*float64(p.Length))
	if len(p.Skews) > 0 {
		apart = max(apart, slices.Max(p.Skews)-slices.Min(p.Skews))
	}
	return apart > near || slices.ContainsFunc(p.Faults, set)
}

// grabs reports whether a call may ask with the script that only takes a lock.
func (c *call) grabs() bool { return c.what != "rlock" && c.what != "tryrlock" }

// refusing is for how long a server knows which requests were given up.
const refusing = 2*time.Minute + time.Second

// runs tells of a script that a client runs, of none if the server does not know it.
func (s *server) runs(client, source string, keys []string) {
	if s.world != nil {
		s.world.reg.ran(s, client, source, keys)
	}
}
