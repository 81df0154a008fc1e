package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock"
)

// A Violation is a promise that was not kept.
type Violation struct {
	Rule string
	At   time.Duration
	Text string
}

// An Event is a line of the history.
type Event struct {
	At    time.Duration
	Party int // a client; -1: the servers, -2: the faults
	Text  string
}

// A register knows what every party asks, is told and believes.
type register struct {
	w *world

	mu       sync.Mutex
	began    time.Time
	beliefs  []*belief
	calls    map[*call]bool
	locks    map[string]*lockLog
	touches  []touched
	refused  map[party]time.Time // when a call was last told, truly, that a lock is held
	interest map[party]time.Time // when a client last had to do with a lock
	located  map[party]time.Time // when a client was last answered about a lock
	freed    map[party]time.Time // when it last had given it back
	hurried  map[party]time.Time // when a call of it that has a limit of its own was last seen
	losses   map[party]time.Time // when it last lost it
	holds    map[party]time.Time // when its hold was asked for
	gave     map[party]time.Time // when its last lease was unlocked
	used     map[party]time.Time // when it last began to do something with a lease on it
	dead     map[int]bool
	closing  map[int]bool
	closings map[int]*closing // that have ended
	unlogged []unlogged
	tenures  map[party]*tenure
	stayed   map[party]*stay
	kept     map[string][]rest // by name: what was unlocked and has a minimum hold
	burdens  map[flight]*burden
	examined int // how often servers were examined
	nudges   []nudge
	works    map[int][]work    // by client, that it may still be busy with
	served   map[int]time.Time // when a client first got a lock
	accounts map[int]*account
	audited  time.Time           // when it was last looked what they have asked for
	gaveUp   map[party]time.Time // when a call of it last ended without its answer
	missed   map[int]time.Time   // when a client missed the word of a grant, after it was mute
	least    time.Duration       // the shortest TTL of the plan
	tick     time.Duration       // how often r looks

	active time.Duration // how long the parties have had something to do

	violations []Violation
	history    []Event
	coverage   map[string]int
	grants     int

	demand map[party]demand
	pongs  map[flight]time.Time // when a server last answered a PING of a client
	named  map[party]*belief    // who has a lock by name, from Lock to Unlock
	left   map[party]time.Time  // when a name was last unlocked
	rest   map[party]time.Time  // until when the server may keep what was unlocked

	stills []standstill
	traffic
	strange  map[string][]strange // by name of a lock
	isCopied map[string]bool      // by name of a lock, of which a key has come from elsewhere by hand
	handled  map[string]bool      // keys that somebody has had stay longer
	thefts   map[string][]theft   // likewise
	brought  map[party]uint64     // the token of the last hold that hooks were told to have waited for on the server
	putBacks []putBack
}

type party struct {
	client int
	name   string
}

// A belief is one lease on one name.
type belief struct {
	client    int
	name      string
	until     time.Time // when a limited one ends at the latest
	lease     *dlock.Lease
	owner     *client
	ctx       context.Context
	shared    bool
	token     uint64
	parent    *belief // on the same name, nil if it was taken and not entered again
	gone      bool    // its owner has begun to unlock it
	granted   time.Time
	asked     time.Time // when its hold was asked for
	ended     time.Time // when Err was first seen to say so
	ttl       time.Duration
	multi     bool                  // its lease is one of a multi-lock
	limited   bool                  // it ends by itself
	downFrom  bool                  // it was exclusive
	lowered   time.Time             // when Downgrade had made it shared
	broken    time.Time             // when Break began to end it
	least     time.Time             // until when the server keeps the lock at least; zero: until it is unlocked
	most      time.Time             // until when it keeps it at most, once it is unlocked; likewise
	label     string                // under which the server keeps it
	demand    demand                // of its client when it was granted
	sought    time.Time             // since when others of its client may have asked; zero: since it was granted
	heard     bool                  // Wanted was seen to say that somebody waits
	plain     bool                  // it was asked for in the way that is usual for its client
	watched   bool                  // Wanted was called before
	docked    map[*server]time.Time // until when what a server has of its hold may end early
	taken     time.Time             // when Break had ended it on a quorum
	lowering  int                   // calls of Downgrade under way
	unlocks   int                   // calls of Unlock under way
	ends      []error               // the kinds of what those before have returned
	untilThen time.Time             // when it was to end, as it said last
	late      time.Time             // when its call began, if a hook has held that up; zero: none has
}

// live reports whether the lease says that its owner has the lock, whatever has become of
// the context under which that works.
func (b *belief) live() bool {
	return !b.gone && b.owner.still.Load() == 0 && b.lease.Err() == nil
}

func (b *belief) under(o *belief) bool {
	for p := b; p != nil; p = p.parent {
		if p == o {
			return true
		}
	}
	return false
}

func (b *belief) String() string {
	mode := "exclusive"
	if b.shared {
		mode = "shared"
	}
	return fmt.Sprintf("c%d %s on %s, token %d, for %v", b.client, mode, b.name, b.token, time.Since(b.granted))
}

// A call is one that has not returned.
type call struct {
	client       int
	what         string
	names        []string
	start        time.Time
	bound        time.Time     // when it must have ended; zero: when the run ends
	limit        time.Time     // likewise, but for the time of a first answer
	answerWithin time.Duration // of a try: how long a first answer may take; 0: no limit of it
	behind       time.Time     // when it last stood behind a lease of its own client
	aside        time.Time     // when it was last seen to do so while another client had the lock
	barred       time.Time     // when a reader last stood behind a writer
	patient      time.Time     // when its WithMaxWait ends; zero: it has none
	ctx          context.Context
	cancel       func()    // ends ctx; nil: nobody does but its bound
	under        []*belief // what it is about, if that is a lease
	within       *owner    // under whose leases it is made; nil: under none
	waits        bool
	asks         bool // it takes no lock: all servers may have to answer
	nested       bool
	told         bool // one that was ahead of it may have heard that the lock is held
	hurried      bool // it, or the hold that it asks for, has a limit of its own
	inVain       bool // the hold that it asks for may be over when it is granted
	brief        bool // a lease of it may be over before a connection is made
	counted      bool // it was reported not to end
	byName       bool // it is one of locks by name
	relocks      bool // likewise, of a name that was lost
	plain        bool // it asks for the lock in the way that is usual for its client

	upgrades bool // it asks to write under its own lease to read
	heldUp   bool // by a hook that has not returned at once
	held     holdUp
	passed   int // leases that others have got meanwhile

	forgotten int // connections of its client that something on the way has forgotten meanwhile

	entered map[string]bool // those of its locks of which its context had a live lease as it began
}

// A lockLog is what the servers were seen to have of a lock.
type lockLog struct {
	states   []truth           // of the first server
	last     map[int]truth     // by server
	busy     map[int]time.Time // by server: when it last had somebody who held or wanted it
	lastHeld time.Time
	forgot   time.Time // when a server last had nothing any more of what it had of it
	changed  time.Time
	tokens   map[uint64]bool // of exclusive grants
	greatest uint64
	writers  uint64 // the greatest exclusive one
	fences   []fence
	weak     map[uint64]bool      // of holds that became shared
	queued   map[string]time.Time // when a request first queued: it keeps its place if it comes back
	pasts    map[int][]truth      // of the members of a quorum
	breaks   []*breaking          // all that there have been
	tokenOf  map[string]uint64    // under which each hold was granted, by its id
}

// touched is the time in which a fault can have an effect.
type touched struct {
	kind   string
	client int // -1: all
	server int
	from   time.Time
	to     time.Time // as far as is known
	quiet  bool      // no connection tells of it
	open   bool      // it is not known yet until when
	slots  []int     // of a cluster that it concerns; none: all
}

func newRegister(w *world) *register {
	return &register{
		w: w, began: time.Now(), calls: make(map[*call]bool), locks: make(map[string]*lockLog),
		refused: make(map[party]time.Time), interest: make(map[party]time.Time), freed: make(map[party]time.Time),
		hurried: make(map[party]time.Time), losses: make(map[party]time.Time), holds: make(map[party]time.Time),
		gave: make(map[party]time.Time), used: make(map[party]time.Time), dead: make(map[int]bool), closing: make(map[int]bool), closings: make(map[int]*closing),
		tenures: make(map[party]*tenure), stayed: make(map[party]*stay), kept: make(map[string][]rest),
		burdens: make(map[flight]*burden), works: make(map[int][]work), served: make(map[int]time.Time), located: make(map[party]time.Time),
		accounts: make(map[int]*account), gaveUp: make(map[party]time.Time), missed: make(map[int]time.Time), least: w.plan.leastTTL(), tick: w.plan.tick(),
		coverage: make(map[string]int), demand: make(map[party]demand), pongs: make(map[flight]time.Time), named: make(map[party]*belief), left: make(map[party]time.Time), rest: make(map[party]time.Time), traffic: newTraffic(), brought: make(map[party]uint64),
	}
}

func (r *register) lock(name string) *lockLog {
	l := r.locks[name]
	if l == nil {
		l = &lockLog{last: make(map[int]truth), busy: make(map[int]time.Time), tokens: make(map[uint64]bool), weak: make(map[uint64]bool), queued: make(map[string]time.Time), tokenOf: make(map[string]uint64)}
		r.locks[name] = l
	}
	return l
}

const mostEvents = 20_000

func (r *register) note(party int, format string, args ...any) {
	if len(r.history) < mostEvents {
		r.history = append(r.history, Event{time.Since(r.began), party, fmt.Sprintf(format, args...)})
	}
}

func (r *register) violate(rule, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	r.note(-2, "VIOLATION %s: %s", rule, text)
	if len(r.violations) < 20 {
		r.violations = append(r.violations, Violation{rule, time.Since(r.began), text})
	}
}

// rests notes that the parties have nothing more to do.
func (r *register) rests() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.active = time.Since(r.began)
}

// tell notes what happens for the history.
func (r *register) tell(party int, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.note(party, format, args...)
}

// begin notes that a call begins.
func (r *register) begin(c *call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.start = time.Now()
	if c.bound.Before(c.start) && !c.bound.IsZero() && r.stood(c.client, c.bound) {
		c.bound = c.start.Add(r.w.undoing(c.client))
	}
	r.calls[c] = true
	r.affords(c.client, float64(requests*len(c.names)))
	h := r.w.plan.hostOf(c.client)
	r.works[h] = append(r.works[h], work{c.start, r.lots(c)})
	r.see(c.client, c.names)
	r.hurries(c)
	r.setsOut(c)
	for _, n := range c.names {
		if c.nested || c.what == "unlock" {
			r.used[party{c.client, n}] = c.start
		}
	}
	r.note(c.client, "%s %v?", c.what, c.names)
}

func (r *register) see(client int, names []string) {
	for _, n := range names {
		r.interest[party{client, n}] = time.Now()
	}
}

// hurries notes a call that has a limit of its own. One with a WithMaxHold of less than a round
// trip has no answer that it can use, nor have those behind it.
func (r *register) hurries(c *call) {
	for _, n := range c.names {
		if c.hurried {
			r.hurried[party{c.client, n}] = time.Now()
		}
	}
}

// isBehindHurried reports whether a call with a limit of its own has been ahead of c.
func (r *register) isBehindHurried(c *call) bool {
	ahead := func(o *call) bool {
		return o.client == c.client && o.hurried && slices.ContainsFunc(o.names, func(n string) bool { return slices.Contains(c.names, n) })
	}
	for o := range r.calls {
		if ahead(o) {
			return true
		}
	}
	return slices.ContainsFunc(c.names, func(n string) bool { return !r.hurried[party{c.client, n}].Before(c.start) })
}

// returned notes how a call has ended.
func (r *register) returned(c *call, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.calls, c)
	r.arrives(c, err)
	if c.waits {
		r.leavesTurns(c)
	}
	r.see(c.client, c.names)
	r.hurries(c)
	r.givesUp(c, err)
	if r.dead[c.client] {
		return
	}
	if err != nil {
		r.note(c.client, "%s %v: %v", c.what, c.names, brief(err))
	}
	if err == nil && c.what != "names" && c.what != "ping" && c.what != "examine" {
		r.locates(c)
	}
	r.inTime(c)
	r.answersBehind(c, err)
	r.refusesUpgrade(c)
	r.isToldConflict(c, err)
	r.panicked(c, err)
	r.demands(c)
	r.decides(c)
	r.judge(c, err)
	r.waitsOut(c, err)
	r.endsByClose(c, err)
	r.tells(c)
	if err != nil && len(c.names) > 1 { // what it had got is on its way back
		for _, n := range c.names {
			r.freed[party{c.client, n}] = time.Now()
		}
	}
}

func brief(err error) string {
	var e *dlock.Error
	if errors.As(err, &e) && e.Kind != nil {
		return fmt.Sprint(e.Kind, " (", e.Err, ")")
	}
	return err.Error()
}

// answersBehind gives the tries that stand behind one of their client the time of a first answer anew: that one has been
// answered.
func (r *register) answersBehind(c *call, err error) {
	if c.waits || err != nil && !errors.Is(err, dlock.ErrHeld) {
		return
	}
	for o := range r.calls {
		if o.client == c.client && o.answerWithin > 0 && !o.heldUp && slices.ContainsFunc(o.names, func(n string) bool { return slices.Contains(c.names, n) }) {
			o.awaitsAnswerFrom(time.Now())
		}
	}
}

// late is what a call may take beyond its bound: in virtual time nothing takes any.
const late = time.Millisecond

func (r *register) inTime(c *call) {
	if over := time.Since(c.bound); !r.stuttered(c.start) && !r.isStill(c.client) && !c.bound.IsZero() && over > late && !c.counted {
		c.counted = true
		r.violate("every call ends", "c%d %s %v began %v ago and should have ended %v ago", c.client, c.what, c.names, time.Since(c.start), over)
	}
}

// judge says whether an error can be true.
func (r *register) judge(c *call, err error) {
	switch {
	case err == nil, err == errPanicked, r.answered(c, err), r.isDenied(c, err), r.isNotHeld(c, err), r.isUnsupported(c, err), r.isConflict(c, err), r.isUnknownMaster(c, err), r.hasTooMany(err):
	case errors.Is(err, dlock.ErrClosed):
		if !r.isClosing(c.client, c.within) {
			r.violate("errors are true", "c%d %s %v: closed, and is not", c.client, c.what, c.names)
		}
	case errors.Is(err, dlock.ErrHeld):
		if !c.told && !r.stuttered(c.start) && !slices.ContainsFunc(c.names, func(n string) bool { return r.refusedTo(c, n) || r.leaves(c, n) || r.ownHas(c, n) || r.isNamed(c, n) }) {
			r.violate("held is held", "c%d %s %v: held, and nobody had or wanted it: %v", c.client, c.what, c.names, err)
			break
		}
		for _, n := range c.names {
			r.refused[party{c.client, n}] = time.Now()
		}
	case errors.Is(err, dlock.ErrUnavailable):
		hurried := slices.ContainsFunc(c.under, func(b *belief) bool { return r.endsBy(b, c) || c.what == "downgrade" && r.isShort(b.ttl) }) || (c.isOver() || c.hurried || c.brief) && (c.took() < r.due(c) || r.moved(c) || r.w.over.Err() != nil)
		fails, since := func(t touch) bool { return t.fails }, c.start.Add(-lingers)
		if !hurried && !r.broke(c, err) && !r.exhausts(c) && !r.findsEnded(c) && !r.breaksBesideForeign(c) && !r.looksAround(c) && !r.entersBehind(c) && !r.isBehindHurried(c) && (!r.harmed(c.client, since, fails) || !c.asks && r.spared(c.client, c.names, since, fails)) {
			r.violate("reachable is available", "c%d %s %v: %v", c.client, c.what, c.names, err)
		}
		r.refuses(c, err)
	case errors.Is(err, dlock.ErrLost), errors.Is(err, dlock.ErrUnlocked), errors.Is(err, dlock.ErrReentry), errors.Is(err, dlock.ErrUpgrade):
		partLost := len(c.names) > 1 && errors.Is(err, dlock.ErrLost)  // while it waited for another
		early := errors.Is(err, dlock.ErrLost) && r.stuttered(c.start) // before it has returned
		if !c.nested && !partLost && !early && !r.broke(c, err) || c.nested && !c.mayRefuse(err) {
			r.violate("errors are true", "c%d %s %v: %v", c.client, c.what, c.names, err)
		}
	case c.ctx.Err() == nil && !c.hurried:
		r.violate("errors are true", "c%d %s %v: %v", c.client, c.what, c.names, err)
	}
}

// unanswered is for how long a call may have had no answer where nothing goes wrong.
const unanswered = time.Second

// How many ways there and back the client library takes to connect, and Names then at a server, with
// single commands on one connection and pipelines on another.
const connecting, askingNames = 4, 3

// due is for how long a call may have had no answer. Names asks the servers of a quorum one
// after the other, and once more who is silent. Who has not had an answer of a cluster before
// connects to one node that says where the others are, and to them.
func (r *register) due(c *call) time.Duration {
	if c.what == "names" && r.w.plan.Backend == "quorum" {
		d := unanswered + r.w.plan.turning() + time.Duration(6*r.w.plan.Servers)*r.w.plan.slowest() // three times there and back
		if r.touched(c.client, c.start.Add(-lingers), whatever) {
			d += r.w.plan.oneByOne()
		}
		return d
	}
	if c.what == "examine" {
		return r.examining()
	}
	if c.what == "names" && r.w.layout != nil { // one node after the other, on new connections
		trips := connecting + 1 + r.w.plan.shards()*(2*connecting+askingNames)
		return max(unanswered, time.Duration(2*trips)*r.w.plan.slowest())
	}
	if first := r.served[c.client]; r.w.layout != nil && (first.IsZero() || first.After(c.start)) {
		return max(unanswered, 20*r.w.plan.slowest())
	}
	return unanswered
}

// broke reports whether c has failed because somebody has taken away what it had got.
func (r *register) broke(c *call, err error) bool {
	return errors.Is(err, dlock.ErrBroken) && r.hasBroken(c.start.Add(-lingers))
}

// hasBroken reports whether a client has called Break since then.
func (r *register) hasBroken(since time.Time) bool {
	return slices.ContainsFunc(r.touches, func(t touched) bool { return t.kind == "break" && t.to.After(since) })
}

// endsBy reports whether a lease is over by itself before an answer to c can have come. Its time runs
// since it was asked for: on a quorum that is up to another round trip ago, in which a token is told.
func (r *register) endsBy(b *belief, c *call) bool {
	trips := 2
	if r.w.plan.Backend == "quorum" {
		trips *= 2
	}
	return b.limited && time.Since(b.until) > -time.Duration(trips)*r.reply(c)
}

// moved reports whether it may have become the turn of a call, to ask the server, so
// shortly ago that it has no answer yet.
func (r *register) moved(c *call) bool {
	then := time.Now().Add(-unanswered)
	return slices.ContainsFunc(c.names, func(n string) bool {
		return r.lock(n).changed.After(then) || r.freed[party{c.client, n}].After(then) || r.turned(c, n, then)
	})
}

// lingers is for how long a fault that is over may have an effect.
const lingers = 8 * time.Second

// harmed reports whether a client has met a fault since then that may cost a call. It may
// cost a lease also at one server of several: that may be one of a bare majority.
func (r *register) harmed(client int, since time.Time, counts func(touch) bool) bool {
	return (!r.outvoted(since) || r.isCutOff(client, since)) && r.touched(client, since, counts)
}

// touched reports whether a client has met a fault since then.
func (r *register) touched(client int, since time.Time, counts func(touch) bool) bool {
	for _, t := range r.touches {
		if (t.client < 0 || t.client == client) && t.to.After(since) && counts(kinds[t.kind]) {
			return true
		}
	}
	return false
}

func whatever(touch) bool { return true }

// trips is how many ways there and back a lease must have room for, or it may be lost while
// a connection is made anew: a request has a sixth of a lease, in which the library makes
// itself known, asks, and hears of the replica. Twice as many, where a slot moves to a node
// that the client has not asked before: that one does not know the scripts either.
const trips = 20

// costs says which faults may cost a lease of that length.
func (r *register) costs(ttl time.Duration) func(touch) bool {
	trip := 2 * r.w.plan.Latency
	if r.w.plan.Acks {
		trip += 2 * r.w.plan.Lag
	}
	if r.w.plan.needsAll() { // it is taken at one after the other
		trip *= time.Duration(r.w.plan.Servers)
	}
	trip += 2 * r.w.plan.Far // the others may not be enough
	short, fleeting := ttl < 2*trips*(trip+2*r.w.plan.Jitter), ttl < trips*trip
	return func(t touch) bool { return t.loses || fleeting && t.fails || short && (t.splits || t.connects) }
}

// isShort reports whether a lease may be lost while a connection is made, for which nothing
// need go wrong: one call more than before has to be made at a time.
func (r *register) isShort(ttl time.Duration) bool { return r.costs(ttl)(touch{fails: true}) }

// outvoted reports whether nothing has gone wrong since then but at one server of several, or
// two of five, which the others do without, whatever has become of a client that was cut off from all
// of them.
func (r *register) outvoted(since time.Time) bool {
	if r.w.plan.Backend != "quorum" {
		return false
	}
	bad := make(map[int]bool)
	for _, t := range r.touches {
		if t.to.Before(since) || t.server == everywhere {
			continue
		}
		switch t.kind {
		case "die", "break", "kill-client", "stutter", "rotate", "suspend", wallOn, heldUpRenewals, heldUpBehind: // of all servers
			return false
		}
		bad[t.server] = true
	}
	return len(bad) <= r.w.plan.spare()
}

// dataLost reports whether a server may have forgotten what it had, or gone on in time,
// and somebody may still believe in that.
// Any of several servers may lose their data: who has does not vote until nobody does. If
// the clock of one steps, a lease of a bare majority is half gone.
func (r *register) dataLost(clients ...int) bool {
	if r.w.plan.Need > 0 {
		return r.mostForgot()
	}
	undone := slices.ContainsFunc(r.touches, func(t touched) bool { return t.kind == "clock-on" || t.kind == "break" })
	return r.anyDataLost(clients...) && (undone || r.w.plan.Backend != "quorum")
}

// The clients are those whose holds count; without any, all.
func (r *register) anyDataLost(clients ...int) bool {
	careful := r.w.plan.Acks && r.w.plan.areCareful(clients)
	then := time.Now().Add(-3*r.w.plan.TTL - lingers)
	return slices.ContainsFunc(r.touches, func(t touched) bool {
		acknowledged := (t.kind == "promotion" || t.kind == "takeover") && careful && !r.movesThen(t)
		return kinds[t.kind].data && !acknowledged && t.to.After(then)
	})
}

// noticed is within what time a client that waits finds out that its subscription is mute.
const noticed = 12 * time.Second

func (r *register) touch(f Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	t := touched{kind: f.Kind, client: f.Client, server: f.Server, from: now, to: now.Add(f.For + f.Size)}
	switch f.Kind {
	case "die":
		// What it has lasts for a lease, and each of its requests that wait for a grant.
		t.to = now.Add(longestTTL(r.w.plan.TTL) + 3*grantTime + lingers)
	case "restart", "restart-empty", "restart-old":
		t.client = -1
		if r.w.plan.waitsToVote() && !r.keepsVoting(f) {
			t.to = now.Add(r.w.plan.rejoining() + r.w.steppedBack() + f.For + f.Size + r.w.plan.unasked())
		}
	case "failover", "promotion", "takeover", "lesser", "slot-move", "cluster-down":
		t.client, t.to = -1, now.Add(f.For+2*r.w.plan.Lag+r.w.plan.Word)
		if f.Kind == "lesser" {
			t.to = t.to.Add(f.Size)
		}
		if r.w.layout != nil {
			t.to = now.Add(r.w.lasts(f))
		}
		if !r.w.movesAtOnce(f) && (r.w.layout == nil && r.w.plan.Word > 0 || r.w.layout != nil && r.w.costsLeases(f)) {
			r.touches = append(r.touches, touched{kind: "word", client: -1, server: f.Server, from: now, to: t.to})
		}
	case "flush", "evict":
		t.client, t.quiet = -1, r.w.plan.Backend == "quorum"
		if r.w.plan.waitsToVote() { // it votes no sooner than one that has restarted
			t.kind, t.to = "restart-empty", now.Add(r.w.plan.rejoining()+r.w.steppedBack())
			t.to = t.to.Add(longest) // the time begins when somebody asks it, who may not reach it
			if r.w.plan.isLonger() {
				t.to = t.to.Add(r.w.plan.Length)
			}
		}
	case "login", "door":
		r.locksOut(t)
	case "greeting":
		r.ungreeted(t)
	case "rotate":
		t.client = -1
		r.locksOut(t)
	case "mute":
		t.to = now.Add(noticed)
	case "forge":
		t.client, t.to = -1, now
	case "pause", "full", "readonly", "loading", "busy", "clock-back", "clock-on", "flush-scripts":
		t.client = -1
	}
	r.startsLate(&t)
	if !r.w.movesAtOnce(f) {
		r.adds(r.touchFurther(f, t)...)
	}
	r.note(-2, "%s c%d s%d way %d for %v, %v", f.Kind, f.Client, f.Server, f.Way, f.For, f.Size)
	for _, name := range r.w.names() {
		if !r.w.hits(f, name) {
			continue
		}
		r.coverage[f.Kind+" × "+r.stateOf(name)]++
	}
}

func (r *register) stateOf(name string) string {
	if !r.w.hasServers() {
		return "unknown"
	}
	if l := r.locks[name]; l != nil && len(l.states) > 0 {
		return l.states[len(l.states)-1].asOf(r.w.keeper(name).clock().UnixMilli()).state()
	}
	return "free"
}

// saw takes a change of the state of a lock on a server.
func (r *register) saw(s *server, name string, t truth) {
	ms := s.clock().UnixMilli()
	r.mu.Lock()
	defer r.mu.Unlock()
	live := t.asOf(ms)
	who := "nobody"
	if live.holder != "" {
		who = fmt.Sprintf("%s until %d ms", s.owner(live.holder), live.expiry-ms)
	}
	for id, e := range live.readers {
		who += fmt.Sprintf(" r:%s until %d ms", s.owner(id), e-ms)
	}
	var queue []string
	for _, id := range t.queue {
		queue = append(queue, id[:1]+":"+s.owner(id))
	}
	r.note(-1, "s%d %s: %s, token %d, queue %v", s.index, name, who, t.token, queue)
	l := r.lock(name)
	l.grants(t)
	r.stirs(name, l.last[s.index], t)
	r.changesHands(s, name, l.last[s.index], t)
	r.letsNext(s, name, l.last[s.index], t)
	r.lastBusy(s, l)
	if live.held() {
		l.lastHeld = time.Now()
	}
	for _, id := range l.last[s.index].asOf(ms).holders() { // the client knows of an end by the clock
		if !slices.Contains(live.holders(), id) {
			r.freed[party{r.w.indexOf(s.owner(id)), name}] = time.Now()
		}
	}
	for _, id := range t.queue {
		if _, found := l.queued[requestOf(id)]; !found {
			l.queued[requestOf(id)] = time.Now()
		}
	}
	r.restsOf(s, name, l.last[s.index], live)
	switch {
	case !t.scripted:
	case r.isStrange(name, time.Now().Add(-5*lingers)):
		r.losesTrack(name)
	default:
		r.follow(s, name, l.last[s.index], t)
		r.letsIn(s, name, l.last[s.index], t)
	}
	if l.last[s.index].token > 0 && t.token == 0 {
		l.forgot = time.Now()
	}
	r.takes(s, name, t)
	r.remember(s, name, t)
	l.last[s.index], l.changed = t, time.Now()
	r.reviveAny(name)
	switch keepers := r.w.keepers(name); {
	case r.w.plan.Servers == 1 && slices.Contains(keepers, s):
		l.states = append(l.states, l.at(keepers))
	case s == keepers[0]:
		l.states = append(l.states, t)
	}
}

// busy reports whether somebody had or wanted a lock at some time since then.
func (r *register) busy(name string, since time.Time) bool {
	switch {
	case r.w.plan.Backend == "quorum":
		return r.busyOnQuorum(name, since)
	case !r.w.hasServers():
		return true // that is not known
	}
	l := r.lock(name)
	if r.demotedHas(name, l, since) {
		return true
	}
	if r.w.plan.Replica { // a master of before may answer as a replica, with what it has
		since = since.Add(-r.w.plan.Lag)
	}
	ms := r.w.keeper(name).clock().UnixMilli()
	// By whole ms of a clock it began earlier than that.
	passed := time.Since(since).Milliseconds() + 1 + r.w.on.Load()/1e6
	for i := len(l.states) - 1; i >= 0; i-- {
		s := l.states[i]
		if len(s.queue) > 0 || s.asOf(max(ms-passed, 0)).held() {
			return true
		}
		if s.at.Before(since) {
			return false // this is how it stood when the call began
		}
	}
	return false
}

// promoted reports whether there may be two masters, or have been a short time ago.
func (r *register) promoted() bool {
	return slices.ContainsFunc(r.touches, func(t touched) bool {
		return (t.kind == "promotion" || t.kind == "takeover" || t.kind == "lesser") && t.to.After(time.Now().Add(-lingers))
	})
}

// demotedHas reports whether a master of before, which may still answer, has or had
// somebody who holds or wants a lock.
func (r *register) demotedHas(name string, l *lockLog, since time.Time) bool {
	promoted := r.promoted()
	if promoted && !l.forgot.Before(since) {
		return true
	}
	for i, t := range l.last {
		if promoted && i != r.w.keeper(name).index && t.token > 0 {
			return true
		}
	}
	return false
}

// leaves reports whether the client of a call was giving a lock back meanwhile, or has
// another call that was told to wait.
func (r *register) leaves(c *call, name string) bool {
	for o := range r.calls {
		if o.client != c.client || !slices.Contains(o.names, name) {
			continue
		}
		if o.what == "unlock" || r.mayHaveHeard(o, name) {
			return true
		}
	}
	if time.Since(r.refused[party{c.client, name}]) <= late {
		return true // it stood behind another that ends with it
	}
	if !r.losses[party{c.client, name}].Before(c.start) {
		return true
	}
	return !r.freed[party{c.client, name}].Before(c.start.Add(-r.reply(c)))
}

// mayHaveHeard reports whether a call may know that the lock is held. One answer counts for those
// behind it, also when who had it has gone and the next of them asks anew.
func (r *register) mayHaveHeard(c *call, name string) bool {
	return c.told || !c.asks && c.what != "unlock" && r.busy(name, c.start)
}

// tells notes which calls stood behind c, which has ended, and may have heard what it had.
func (r *register) tells(c *call) {
	for o := range r.calls {
		if o.client == c.client && !o.told {
			o.told = slices.ContainsFunc(c.names, func(n string) bool { return slices.Contains(o.names, n) && r.mayHaveHeard(c, n) })
		}
	}
}

// ownHas reports whether the client of a call had a lease of its own meanwhile that was
// alive as far as it could know: a server that loses its data tells nobody.
func (r *register) ownHas(c *call, name string) bool {
	return slices.ContainsFunc(r.beliefs, func(b *belief) bool {
		return b.client == c.client && b.name == name && (b.ended.IsZero() || b.ended.After(c.start))
	})
}

// reply is within what time the client of a call hears what has become of a request that
// the server has executed.
func (r *register) reply(c *call) time.Duration {
	if r.touched(c.client, c.start.Add(-lingers), whatever) {
		return lingers
	}
	return r.w.plan.slowest()
}

// unlocking notes that an Unlock has returned. What was lost before is not held until the
// server has heard of that, but for the other locks of a multi-lock.
func (r *register) unlocking(c *call, all []*belief) {
	delete(r.calls, c)
	delete(r.open, c)
	r.see(c.client, c.names)
	if len(all) == 1 && !all[0].multi && errors.Is(all[0].lease.Err(), dlock.ErrLost) && !all[0].ended.IsZero() {
		return
	}
	for _, n := range c.names {
		r.freed[party{c.client, n}] = time.Now()
	}
}

// grant notes a lease, and returns what it says of each name.
func (r *register) grant(c *call, o *owner, lease *dlock.Lease, ctx context.Context, op *Op, shared bool) []*belief {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.calls, c)
	r.arrives(c, nil)
	r.knowsTurn(c)
	r.see(c.client, c.names)
	if r.dead[c.client] {
		return nil
	}
	r.inTime(c)
	r.isToldConflict(c, nil)
	r.grants++
	if _, found := r.served[c.client]; !found {
		r.served[c.client] = time.Now()
	}
	r.locates(c)
	var all []*belief
	for _, name := range c.names {
		token := lease.TokenOf(r.w.plan.localName(c.client, name))
		b := &belief{
			client: c.client, name: name, lease: lease, owner: r.w.clients[c.client], ctx: ctx, shared: shared, token: token,
			parent: c.enters(o, name, token), granted: time.Now(), ttl: r.w.plan.TTL,
			multi: c.what == "multi" || c.what == "trymulti", limited: op.MaxHold > 0, plain: c.plain,
		}
		if op.TTL > 0 {
			b.ttl = op.TTL
		}
		if c.heldUp {
			b.late = c.start
		}
		b.until, b.least = b.granted.Add(op.MaxHold), r.atLeast(b, op)
		if !b.least.IsZero() {
			b.most = b.granted.Add(op.MinHold)
		}
		if b.parent != nil {
			b.limited, b.until, b.ttl = b.parent.limited, b.parent.until, b.parent.ttl
		}
		b.asked, b.label, b.demand = r.askedFor(c, b), r.labelOf(b, op), r.demand[party{c.client, name}]
		r.docks(b)
		r.note(c.client, "%s %s: token %d", c.what, name, b.token)
		if lease.Err() == nil {
			r.fences(b)
		}
		all = append(all, b)
		r.beliefs = append(r.beliefs, b)
	}
	shareLimits(all)
	r.demandsOnce(c, all)
	r.overtakes(c)
	for _, b := range all {
		r.alone(b)
		r.backed(b)
		r.writes(c, b)
		r.passed(c, b)
		r.stays(c, b, op)
		r.comesTooEarly(b)
		r.starves(b)
	}
	return all
}

// shareLimits has the names of one lease end by themselves when the first of them does.
func shareLimits(all []*belief) {
	for _, b := range all {
		for _, o := range all {
			if b.limited && (!o.limited || b.until.Before(o.until)) {
				o.limited, o.until = true, b.until
			}
		}
	}
}

// fences checks that tokens grow. Readers of one phase may have different tokens on a
// quorum, in any order: theirs are compared with those of writers alone.
func (r *register) fences(b *belief) {
	l := r.lock(b.name)
	before := l.greatest
	if b.shared && r.w.plan.Backend == "quorum" {
		before = l.writers
	}
	if b.token == 0 {
		r.violate("tokens grow", "%v has no token", b)
	}
	if b.parent != nil {
		if b.token != b.parent.token {
			r.violate("tokens grow", "%v was entered under token %d", b, b.parent.token)
		}
		return
	}
	// Break raises a token above the clock, by up to a lease, and a clock that is set back
	// falls behind the tokens.
	above := r.hasBroken(time.Now().Add(-2*r.w.plan.TTL-lingers)) || r.w.steppedBack() > 0
	switch {
	case r.tokensMayFall(), r.joinsOlder(b):
	case b.shared && b.token == before && r.isByHand(b.name, b.asked.Add(-lingers)): // readers that are none go on, and it joins them
	case r.w.steppedBack() >= r.w.plan.keeps(): // the server may have forgotten a token that is ahead of its clock
	case r.isPutBack(b):
	case above && r.isStrange(b.name, time.Time{}): // somebody else has put something in its place
	case r.dataLostOf(b.name):
		// Two masters may grant it at the same microsecond.
		if !b.shared && l.tokens[b.token] && !above && !r.promoted() {
			r.violate("tokens are unique", "%v", b)
		}
		if !b.shared && !above && !l.growsSince(b.token, b.asked) {
			r.violate("tokens grow", "%v after a greater one had been returned", b)
		}
	case !b.shared && r.isByHand(b.name, time.Now().Add(-lingers)): // who lost it may hear that it had it after the next one
		if !l.growsSince(b.token, b.asked) {
			r.violate("tokens grow", "%v after a greater one had been returned", b)
		}
	case b.shared && b.token < before, b.shared && b.token == l.writers && !l.weak[b.token], !b.shared && b.token <= l.greatest:
		r.violate("tokens grow", "%v after %d", b, before)
	}
	l.greatest = max(l.greatest, b.token)
	if !b.shared {
		l.tokens[b.token] = true
		l.writers = max(l.writers, b.token)
		l.fences = append(l.fences, fence{time.Now(), l.writers, b.asked, b.token})
	}
}

// alone checks that nobody believes in a hold that b excludes.
func (r *register) alone(b *belief) {
	if !b.live() {
		return
	}
	for _, o := range r.beliefs {
		if o == b || o.name != b.name || o.shared && b.shared || o.under(b) || b.under(o) || !o.live() || r.dead[o.client] {
			continue
		}
		if r.mayOverlap(b, o) {
			continue
		}
		r.violate("one believer", "%v; and %v", b, o)
	}
}

// backed checks that the server keeps what b believes in.
func (r *register) backed(b *belief) {
	if r.w.shelves != nil && b.live() && !r.dead[b.client] {
		r.keptOnShelves(b)
	}
	if !r.w.hasServers() || !b.live() || r.dead[b.client] || r.mayBeForgotten(b) {
		return
	}
	behind := 0
	for _, s := range r.w.keepers(b.name) {
		if r.keeps(s, b) || b.isDocked(s) {
			behind++
		}
	}
	if behind < r.w.plan.need() {
		r.violate("the server keeps what is believed", "%v: %d of %d", b, behind, r.w.plan.Servers)
	}
}

func (r *register) keeps(s *server, b *belief) bool {
	t := r.lock(b.name).last[s.index].asOf(s.clock().UnixMilli())
	me := r.w.label(b.client)
	if t.holder != "" && s.owner(t.holder) == me {
		return true
	}
	if !b.shared {
		return false
	}
	for id := range t.readers {
		if s.owner(id) == me {
			return true
		}
	}
	return false
}

// gives notes that leases are about to be unlocked by their owner.
func (r *register) gives(all []*belief) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range all {
		if b.gone {
			continue // by another call
		}
		if b.lease.Err() != nil {
			r.lostTrue(b)
		}
		r.lets(b)
		r.leavesRest(b)
		b.gone = true
		r.gave[party{b.client, b.name}] = time.Now()
		if !b.least.IsZero() {
			r.minimal[party{b.client, b.name}] = time.Now()
		}
		r.see(b.client, []string{b.name})
	}
	r.beliefs = slices.DeleteFunc(r.beliefs, func(b *belief) bool { return b.gone })
}

// weakens notes that leases are about to be shared ones, and returns those that were not.
func (r *register) weakens(all []*belief) (weak []*belief) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range all {
		b.lowering++
		if !b.shared {
			b.shared, b.downFrom = true, true
			r.lock(b.name).weak[b.token] = true
			weak = append(weak, b)
		}
	}
	return weak
}

// lostTrue checks that a lease that was lost had a reason to be.
func (r *register) lostTrue(b *belief) {
	if !b.ended.IsZero() {
		return
	}
	b.ended = time.Now()
	r.losses[party{b.client, b.name}] = b.ended
	err := b.lease.Err()
	r.note(b.client, "%s over: %v", b.name, brief(err))
	r.saysWhy(b, err)
	r.hasRunOut(b, err)
	r.mustLog(b, err)
	if !errors.Is(err, dlock.ErrLost) || b.limited || r.dead[b.client] || !r.w.knowsFaults() || r.isShort(b.ttl) {
		return
	}
	if r.isAnyStrange(append(r.namesOf(b.lease), b.name), b.asked) {
		return
	}
	r.survives(b, err)
	since := time.Now().Add(-2*b.ttl - lingers)
	if !b.late.IsZero() && b.late.Before(since) {
		since = b.late
	}
	if b.downFrom && r.touched(b.client, since, func(t touch) bool { return t.splits }) {
		return // a hold is not renewed while it is downgraded, for which its keys have to be on one node
	}
	ttl := b.ttl
	if b.ended.Sub(b.granted) < grantTime { // it was granted for no longer, and has not been confirmed
		ttl = min(ttl, grantTime)
	}
	if !r.mayHaveCost(b.client, since, ttl) || r.spared(b.client, r.namesOf(b.lease), since, r.costs(ttl)) {
		r.violate("nothing is lost for nothing", "%v: %v", b, err)
	}
}
