package simulation

import (
	"maps"
	"math/rand/v2"
	"slices"
	"time"
)

// A Plan is all that is decided about a run beforehand. It is plain data, so that it can
// be sent to another process, written down, and made smaller.
type Plan struct {
	Seed      uint64
	Backend   string // redis, memory or quorum
	Servers   int
	Names     int
	TTL       time.Duration // of the clients
	Length    time.Duration // for how long the parties are busy
	Latency   time.Duration // one way
	Jitter    time.Duration
	Drift     float64         // of the servers' clocks
	Drifts    []float64       `json:",omitempty"` // of the clock of each server; none: that of all
	Skews     []time.Duration `json:",omitempty"` // by how much the clock of each server is wrong; none: they agree
	Replica   bool            // each server has one
	Cluster   bool            `json:",omitempty"` // the server is one: three masters
	Sentinels bool            `json:",omitempty"` // clients ask them which server is the master
	Word      time.Duration   `json:",omitempty"` // within what time all of them know
	Kept      bool            `json:",omitempty"` // clients look up the address of the master by themselves
	Lag       time.Duration   // of replicas
	Acks      bool            // a hold counts when the replica has it
	Announced bool            `json:",omitempty"` // each new connection sees whether the server has restarted
	Spies     bool            `json:",omitempty"` // the end of a lease is looked at from within
	Beat      time.Duration   `json:",omitempty"` // all begin what they do at such moments; 0: at any
	MaxTTL    time.Duration   `json:",omitempty"` // the greatest that clients of a quorum ask for; 0: the default
	Skew      time.Duration   `json:",omitempty"` // by which clocks of a quorum may differ; 0: the default
	Far       time.Duration   `json:",omitempty"` // by which the last server is farther away than the others
	Need      int             `json:",omitempty"` // how many servers of a quorum a hold takes; 0: a majority
	Most      time.Duration   `json:",omitempty"` // that is granted, whatever is asked for; 0: any
	Keep      time.Duration   `json:",omitempty"` // for which the key of a free lock stays; 0: what is usual
	Fresh     bool            `json:",omitempty"` // nobody has ever used the servers
	Pages     int             `json:",omitempty"` // in which a server tells of its keys; 0: one
	Small     bool            `json:",omitempty"` // the library has small limits
	Trace     bool            `json:",omitempty"` // the history has what servers are asked and say
	Forgets   time.Duration   `json:",omitempty"` // after what time something on the way forgets an idle connection; 0: never
	Rotates   bool            `json:",omitempty"` // the password changes, which clients ask for
	Spelled   []string        `json:",omitempty"` // what locks are called; none: a letter each
	Durable   []int           `json:",omitempty"` // the members of a quorum that have every write on disk before its reply
	Shelves   bool            `json:",omitempty"` // the servers of a quorum are in memory
	Grows     bool            `json:",omitempty"` // there is a fourth master of a cluster, which has no slots at first
	Forgetful bool            `json:",omitempty"` // a replica of a cluster does not know which slots move
	Ahead     time.Duration   `json:",omitempty"` // by which the clocks of all servers are ahead of those of the clients
	Old       []int           `json:",omitempty"` // the servers that are of Redis 6.2
	Distances []distance      `json:",omitempty"` // by which servers are nearer to clients
	Interval  time.Duration   `json:",omitempty"` // after which who waits asks where no message comes; 0: what is usual
	Movers    int             `json:",omitempty"` // how many slots of a cluster move at once at most; 0: one
	Ends      time.Duration   `json:",omitempty"` // after what time servers end an idle connection; 0: never
	Atomic    bool            `json:",omitempty"` // slots of a cluster move with all keys at one moment
	Clients   []Party
	Faults    []Fault
}

// A Party is one client, and what each of its goroutines does.
type Party struct {
	Workers  [][]Op
	Close    time.Duration `json:",omitempty"` // when it is closed before the others; 0: with them
	After    time.Duration `json:",omitempty"` // when it connects, and begins its work; 0: at once
	Opens    *opening      `json:",omitempty"` // how it connects then; nil: at once
	Own      *own          `json:",omitempty"` // its client is one that a program has made; nil: that of Open
	Careless bool          `json:",omitempty"` // its holds count without the replica
	Poll     bool          `json:",omitempty"` // it does without a subscription
	Keep     time.Duration `json:",omitempty"` // for which it has the key of a free lock stay; 0: as long as all do
	Hooks    string        `json:",omitempty"` // count, slow or panic; empty: it has none
	Asks     bool          `json:",omitempty"` // it takes no lock
	Fleeting string        `json:",omitempty"` // how it makes a client for each op: open, own, shared; empty: it has one
	Lodges   int           `json:",omitempty"` // the number, from 1, of the client whose connections it uses; 0: it has its own
	Logs     bool          `json:",omitempty"` // it has a logger
	ClosedIn string        `json:",omitempty"` // the hook that closes it, once Close has come; empty: nobody waits for one
	Closing  *Closing      `json:",omitempty"` // how it is closed before the others; nil: with a context that is over, or with none
	Naming                 // what it is called, and how it calls locks
	Manners                // what its hooks and its logger do besides
}

// An Op is one use of a lock, and what is done under it.
type Op struct {
	Pause  time.Duration // before it
	Call   string        // lock, trylock, rlock, tryrlock, multi, trymulti, do, lead, inspect, names, break, ping, examine
	Names  []int
	Wait   time.Duration `json:",omitempty"` // bounds the call; 0: until the end of the run; less: it is over already
	Cancel bool          `json:",omitempty"` // by a cancellation, not by a deadline
	Cause  string        `json:",omitempty"` // of the end of its contexts; empty: none of their own

	TTL, MaxHold, MinHold, MaxWait time.Duration `json:",omitempty"`
	NoReentry                      bool          `json:",omitempty"`

	Hold      time.Duration
	Inside    []Op            `json:",omitempty"` // under the lease
	Together  bool            `json:",omitempty"` // at the same time
	Early     bool            `json:",omitempty"` // the lease is unlocked before those inside have ended
	Downgrade bool            `json:",omitempty"`
	Brief     time.Duration   `json:",omitempty"` // for how long the context of that lasts; 0: as long as the lease
	Beside    time.Duration   `json:",omitempty"` // after which it is, beside those inside; 0: before them
	Unlock    string          `json:",omitempty"` // with what context: live, dead, short
	Forget    bool            `json:",omitempty"` // never unlocked: Close does it
	Twice     bool            `json:",omitempty"` // unlocked once more
	Late      bool            `json:",omitempty"` // a hold is broken some time after it was looked at
	Said      bool            `json:",omitempty"` // it is broken by the token that a lease says
	Limit     time.Duration   `json:",omitempty"` // of a short context
	Asides    []Aside         `json:",omitempty"` // what is asked of the first of its locks meanwhile
	Uses                      // of what else the library offers
	AtOnce    []Beside        `json:",omitempty"` // calls at the same time, in place of the one that unlocks it
	Lapse     string          `json:",omitempty"` // how the lock gets lost under the lease: flush, break
	Lag       time.Duration   `json:",omitempty"` // how long before what is done under it
	Foreign   *ForeignContext `json:",omitempty"` // of what type its contexts are; nil: those of the standard library
}

// A Fault is one thing that goes wrong.
type Fault struct {
	Kind    string
	At      time.Duration
	For     time.Duration
	Client  int // -1: all
	Server  int
	Size    time.Duration // how late, how far a clock steps, how old a copy is
	Way     int           // up, down, both
	Steps   int           `json:",omitempty"` // at which of the moments of its kind a process is stopped
	Trigger *trigger      `json:",omitempty"` // that it waits for from then on; nil: it happens then
}

// The faults, and what each touches: whether locks may be lost by it, whether calls may
// fail, whether a server may come back with other data, whether messages may go to
// another server than requests, whether calls may be denied, and whether who waits may
// have to ask again and again.
type touch struct{ loses, fails, data, splits, denies, polls, connects bool }

var kinds = map[string]touch{
	"delay":         {loses: true, fails: true},
	"slow":          {loses: true, fails: true},
	"reset":         {fails: true},
	"cut":           {loses: true, fails: true},
	"hole":          {loses: true, fails: true},
	"hole-reset":    {loses: true, fails: true},
	"half-open":     {loses: true, fails: true},
	"half-dead":     {fails: true},
	"unanswered":    {fails: true},
	"deaf":          {},
	"mute":          {},
	"forge":         {},
	"die":           {loses: true, fails: true},
	"pause":         {loses: true, fails: true},
	"restart":       {loses: true, fails: true},
	"restart-empty": {loses: true, fails: true, data: true},
	"restart-old":   {loses: true, fails: true, data: true},
	"failover":      {fails: true, splits: true},
	"promotion":     {loses: true, fails: true, data: true, splits: true},
	"takeover":      {loses: true, fails: true, data: true, splits: true},
	"slot-move":     {fails: true, splits: true},
	"cluster-down":  {loses: true, fails: true},
	"word":          {loses: true, fails: true}, // the Sentinels do not know a new master yet
	"no-sentinel":   {loses: true, fails: true},
	"break":         {loses: true, data: true},
	"flush":         {loses: true, data: true}, // FLUSHALL: the server goes on, and has no data
	"evict":         {loses: true, data: true}, // one key is deleted
	"flush-scripts": {},
	"full":          {fails: true},
	"readonly":      {loses: true, fails: true},
	"loading":       {loses: true, fails: true},
	"busy":          {loses: true, fails: true},
	"misconf":       {loses: true, fails: true},
	"noperm":        {loses: true, fails: true, denies: true, polls: true},
	"no-channels":   {polls: true}, // requests go on, and messages do not
	"login":         {fails: true, denies: true, polls: true},
	"door":          {fails: true},
	"locked-out":    {loses: true, fails: true, denies: true}, // of who has to connect anew
	"pool":          {loses: true, fails: true},               // of a client's connections none is left
	"clock-back":    {},
	"clock-on":      {loses: true, fails: true, data: true},
}

// longest is how long a fault lasts at most: all must be over when the world ends.
const longest = 30 * time.Second

// length is for how long the parties of a plan are busy at least. They are for several
// leases.
const (
	length = 60 * time.Second
	leases = 8
)

// NewPlan draws a plan. Which kinds of fault and of call there are is drawn first, so
// that runs differ from each other more than they would if all had a little of each.
func NewPlan(seed uint64, backend string) *Plan {
	d := &draw{rand.New(rand.NewPCG(seed, 0))}
	p := &Plan{Seed: seed, Backend: backend, Servers: 1}
	topology := ""
	if backend == "sentinel" || backend == "cluster" {
		p.Backend, topology = "redis", backend
	}
	if p.Backend == "" {
		p.Backend = pick(d, "redis", "redis", "redis", "redis", "redis", "redis", "memory", "quorum")
	}
	if p.Backend == "quorum" {
		p.Servers = 3
	}
	p.Names = 1 + d.IntN(3)
	p.TTL = pick(d, time.Second, 3*time.Second, 10*time.Second, 30*time.Second)
	p.Length = max(length, leases*p.TTL)
	p.Latency = pick(d, 100*time.Microsecond, time.Millisecond, 10*time.Millisecond)
	p.Jitter = pick(d, 0, p.Latency/2, p.Latency)
	p.Drift = pick(d, 0, 0, 2e-4, -2e-4)
	g := &generator{draw: d, plan: p}
	g.features()
	clients := 1 + d.IntN(4)
	for range clients {
		g.party()
	}
	if p.Backend == "redis" {
		p.Replica = g.often(40)
		p.Lag = pick(d, time.Millisecond, 10*time.Millisecond, 100*time.Millisecond)
		if p.Acks = p.Replica && g.often(50); p.Acks { // it must come within a sixth of a lease
			p.Lag = min(p.Lag, 10*time.Millisecond)
		}
	}
	g.faults(clients)
	if p.Backend == "redis" {
		g.sentinels(topology)
		g.cluster(backend)
	}
	g.conditions()
	if p.Backend == "quorum" {
		g.members()
	}
	g.further()
	g.lookups()
	g.denials()
	g.owns()
	g.losses()
	g.besides()
	g.skews()
	g.overtakes()
	g.needs()
	g.presses()
	g.longer()
	g.spells()
	g.used()
	g.leads()
	g.asksServers()
	g.wider()
	g.openings()
	g.triggers()
	g.partitions()
	g.clocks()
	g.even()
	g.mixed()
	g.questions()
	g.novelties()
	g.lapses()
	g.crowded()
	g.gives()
	g.unfollowed()
	g.moments()
	g.idleness()
	g.alone()
	g.asked()
	g.saidTokens()
	g.functions()
	g.logging()
	g.closesIn()
	g.shelved()
	g.durables()
	g.regroups()
	g.foreigners()
	g.ranges()
	g.hurries()
	g.sets()
	g.bereft()
	g.muted()
	g.forgetful()
	g.grows()
	g.unnoticing()
	g.lodges()
	g.foreignMembers()
	g.wallClocks()
	g.impatient()
	g.manners()
	g.outages()
	g.shortFaults()
	g.closings()
	g.across()
	g.drops()
	g.versions()
	g.distances()
	g.pools()
	g.intervals()
	g.sideBySide()
	g.limited()
	g.ends()
	g.breakers()
	g.foreignContexts()
	g.greetings()
	g.streams()
	g.throngs()
	g.multitudes()
	g.fleets()
	g.ignorant()
	g.atomically()
	g.suspends()
	g.setsWall()
	g.handles()
	g.lessers()
	return p
}

type draw struct{ *rand.Rand }

func (d *draw) often(percent int) bool { return d.IntN(100) < percent }

func (d *draw) within(a, b time.Duration) time.Duration {
	return a + time.Duration(d.Int64N(int64(b-a)+1))
}

func pick[T any](d *draw, of ...T) T { return of[d.IntN(len(of))] }

// A generator knows what a plan makes use of.
type generator struct {
	*draw
	plan    *Plan
	calls   []string
	uses    map[string]bool
	holds   time.Duration
	thinks  time.Duration
	hurried int // percent of calls that have little time
	nested  int // percent of leases under which there are calls
}

// slowest is how long a message takes at most where nothing goes wrong.
func (p *Plan) slowest() time.Duration {
	slowest := p.Latency + tail*p.Jitter + p.Far
	if p.Acks {
		slowest += p.Lag
	}
	return slowest
}

func (g *generator) features() {
	g.uses = make(map[string]bool)
	for _, f := range []string{"inside", "together", "early", "downgrade", "maxhold", "minhold",
		"maxwait", "noreentry", "otherttl", "dead", "forget", "close", "poll", "hooks"} {
		g.uses[f] = g.often(50)
	}
	g.uses["forget"] = g.uses["forget"] && g.often(30)
	g.uses["poll"] = g.uses["poll"] && g.often(30)
	for _, c := range []string{"lock", "trylock", "rlock", "tryrlock", "multi", "trymulti", "do"} {
		if g.often(50) {
			g.calls = append(g.calls, c)
		}
	}
	for _, c := range []string{"inspect", "names", "break"} {
		if g.often(10) {
			g.calls = append(g.calls, c)
		}
	}
	g.calls = append(g.calls, pick(g.draw, "lock", "rlock"), "lock")
	g.holds = pick(g.draw, 0, 20*time.Millisecond, 500*time.Millisecond, 5*time.Second)
	g.thinks = pick(g.draw, 0, 50*time.Millisecond, time.Second, 5*time.Second)
	g.hurried = pick(g.draw, 0, 10, 50)
	g.nested = pick(g.draw, 20, 60)
}

func (g *generator) party() {
	p := Party{Poll: g.uses["poll"] && g.plan.Backend == "redis" && g.often(50)}
	if g.uses["hooks"] {
		p.Hooks = pick(g.draw, "count", "slow", "panic")
	}
	if g.uses["close"] && g.often(30) {
		p.Close = g.within(g.plan.Length/4, g.plan.Length)
	}
	for range 1 + g.IntN(3) {
		var ops []Op
		for used := time.Duration(0); used < g.plan.Length && len(ops) < 60; {
			op := g.op(0)
			ops = append(ops, op)
			used += op.Pause + op.Hold + 5*g.plan.Latency
		}
		p.Workers = append(p.Workers, ops)
	}
	g.plan.Clients = append(g.plan.Clients, p)
}

func (g *generator) op(depth int) Op {
	op := Op{
		Pause: g.within(0, g.thinks), Call: pick(g.draw, g.calls...), Hold: g.within(0, g.holds),
		Names: []int{g.IntN(g.plan.Names)}, Unlock: "live",
	}
	if g.often(5) {
		op.Hold = g.within(0, 3*g.plan.TTL)
	}
	if op.Call == "multi" || op.Call == "trymulti" {
		op.Names = g.Perm(g.plan.Names)[:1+g.IntN(g.plan.Names)]
	}
	g.waiting(&op, depth)
	g.options(&op)
	g.ending(&op)
	if g.uses["inside"] && depth < 2 && g.often(g.nested) {
		for range 1 + g.IntN(2) {
			inner := g.op(depth + 1)
			if g.often(70) {
				inner.Names = op.Names[:1] // again, and not another lock as well
			}
			op.Inside = append(op.Inside, inner)
		}
		op.Together = g.uses["together"] && g.often(50)
		op.Early = g.uses["early"] && g.often(30)
	}
	return op
}

// waiting draws for how long a call may wait. Whoever waits under a lock for another
// one must not do so for ever: two could wait for each other.
func (g *generator) waiting(op *Op, depth int) {
	switch {
	case g.often(g.hurried):
		op.Wait = g.within(0, 40*g.plan.Latency+20*time.Millisecond)
		if g.often(5) {
			op.Wait = -1
		}
	case depth > 0:
		op.Wait = g.within(0, g.plan.TTL)
	case g.often(50):
		op.Wait = g.within(0, 3*g.plan.TTL)
	}
	op.Cancel = g.often(50)
	if g.uses["maxwait"] && g.often(20) {
		op.MaxWait = g.within(time.Millisecond, g.plan.TTL)
	}
}

func (g *generator) options(op *Op) {
	if g.uses["maxhold"] && g.often(20) {
		op.MaxHold = g.within(20*time.Millisecond, 2*g.plan.TTL)
	}
	if g.uses["minhold"] && g.often(15) {
		op.MinHold = g.within(time.Millisecond, g.plan.TTL)
		if op.MaxHold > 0 {
			op.MinHold = min(op.MinHold, op.MaxHold)
		}
	}
	if g.uses["otherttl"] && g.often(20) {
		op.TTL = g.within(max(200*time.Millisecond, 8*g.plan.slowest(), 2*trips*g.plan.Latency), 2*g.plan.TTL)
	}
	op.NoReentry = g.uses["noreentry"] && g.often(20)
}

func (g *generator) ending(op *Op) {
	op.Downgrade = g.uses["downgrade"] && g.often(25)
	if g.uses["dead"] && g.often(30) {
		op.Unlock = pick(g.draw, "dead", "short")
		op.Limit = g.within(0, 10*g.plan.Latency)
	}
	op.Forget = g.uses["forget"] && g.often(2)
}

// faults draws what goes wrong. One run in five is without any: there everything has to
// go right.
func (g *generator) faults(clients int) {
	if g.often(20) || g.plan.Backend == "memory" {
		return
	}
	var enabled []string
	for _, k := range sortedKinds() {
		if g.often(25) && g.can(k) {
			enabled = append(enabled, k)
		}
	}
	if g.often(25) { // the one below alone
		enabled = nil
	}
	for one := ""; one == ""; {
		if one = pick(g.draw, sortedKinds()...); !g.can(one) {
			one = ""
		} else {
			enabled = append(enabled, one)
		}
	}
	// Of several servers one alone may give any trouble, and nobody notices.
	place, alone := g.IntN(g.plan.Servers), g.often(50)
	for range 1 + g.IntN(6) {
		f := Fault{
			Kind: pick(g.draw, enabled...), At: g.within(0, g.plan.Length), Client: g.IntN(clients),
			Server: g.IntN(g.plan.Servers), Way: g.IntN(3),
		}
		f.For = g.lasting()
		f.Size = pick(g.draw, g.within(0, 100*time.Millisecond), g.within(0, 2*g.plan.TTL))
		if alone {
			f.Server = place
		}
		if g.often(20) {
			f.Client = -1
		}
		if f.Kind == "die" && f.Client < 0 {
			f.Client = 0
		}
		g.plan.Faults = append(g.plan.Faults, f)
	}
}

// lasting is for how long a fault lasts: a moment, less than a lease, or up to three.
func (g *generator) lasting() time.Duration {
	p := g.plan
	return pick(g.draw, g.within(0, 100*time.Millisecond), g.within(0, p.TTL), g.within(0, min(3*p.TTL, longest)))
}

// sentinels has clients of a part of the plans learn from Sentinels where the master is.
func (g *generator) sentinels(topology string) {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 2))} // whoever has none draws as before
	p := g.plan
	if topology == "cluster" || topology != "sentinel" && (!p.Replica || g.often(50)) {
		return
	}
	p.Replica, p.Sentinels = true, true
	p.Word = pick(g.draw, 0, 10*time.Millisecond, 500*time.Millisecond, 3*time.Second)
	if len(p.Faults) == 0 || g.often(30) {
		return
	}
	for range 1 + g.IntN(4) {
		f := Fault{Kind: pick(g.draw, "failover", "promotion", "no-sentinel"), At: g.within(0, p.Length), Client: -1, Way: g.IntN(3)}
		f.For = g.lasting()
		p.Faults = append(p.Faults, f)
	}
}

// can reports whether a fault can happen to the servers of the plan.
func (g *generator) can(kind string) bool {
	switch kind {
	case "failover", "promotion":
		return g.plan.Replica
	case "forge":
		return g.plan.Backend == "redis"
	case "break", "word", "no-sentinel", "flush", "evict": // a client does it, it follows, or it is drawn by itself
		return false
	}
	return true
}

// sortedKinds are those that can happen to every server, and some that cannot.
func sortedKinds() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(kinds)), func(k string) bool {
		return slices.Contains([]string{"stutter", "word", "no-sentinel", "flush", "evict", "locked-out", "pool", "unanswered", "rotate"}, k) ||
			slices.Contains(clusterKinds, k) || slices.Contains(deniers, k) || isFurther(k)
	})
}
