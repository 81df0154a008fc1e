package protocol

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// A NodeQueue is a model of locks as nodes of ZooKeeper. The queue of a lock is the
// children of its node in the order of their sequence numbers. Who joins writes to the
// lock's node in the same transaction, and so learns the version of that node, which
// counts those who have joined.
//
// Who is not alone finds its predecessor by a list of the children. In a long queue it
// announces its child under the version that it got, and asks who has announced the version
// before. Nobody but that one can be its predecessor: the version tells. A reader announces
// also the writer that it waits for, as soon as it knows.
//
// A writer that has waited signals its release. That lets in whoever watches it, however
// many there were before it. A deletion alone lets in only who has listed one predecessor.
//
// A client that was alone with the lock joins by a create alone, without a new version. It
// deletes that node if it finds that it is not alone.
//
// A history is a random interleaving of the steps of all clients. Each request is one
// step, its answer is taken in a later one, and events come in order, at any time.
type NodeQueue struct {
	Without NodeRule

	rng           *rand.Rand
	dir           *lockNode // nil: there is none
	transactions  int64
	announcements map[announcement]announced
	clients       []*queuer

	Granted, ByAnnouncement int
	Violations              []string
}

// A NodeRule is one thing that the protocol of NodeQueue asks for.
type NodeRule uint

const (
	VersionBefore      NodeRule = 1 << iota // the predecessor has announced the version right before, and no other
	VersionOfItsOwn                         // the version is that of the transaction that made the child
	OneOfSeveral                            // that an announced predecessor was deleted proves nothing about those before it
	GoneBeforeWatched                       // nor that it is not there
	WritersFindReaders                      // a writer waits for a reader before it, and not for whom that waits for
	HoldersSignal                           // only who has held the lock signals
	FastLeaves                              // a node without a version that is not alone waits for nothing
	WaitersHaveNodes                        // a waiter hears that somebody has deleted its node before it hears that it is next
)

// A lockNode is the node of a lock.
type lockNode struct {
	created  int64
	version  int
	sequence int
	children map[string]*child
}

type child struct {
	name     string
	kind     kind
	sequence int
	watchers []*queuer
}

// An announcement is under a version of the lock's node. Those of a node that was made anew
// begin anew, but an old one would do no harm: it names a child that is gone.
type announcement struct {
	created int64
	version int
}

type announced struct{ name, writer string }

// A queuer is a client that asks for the lock again and again.
type queuer struct {
	phase     phase
	reply     func() // to be taken
	isOld     bool   // it neither makes announcements nor looks for them
	kind      kind
	name      string
	version   int // zero: unknown
	created   int64
	announced []announcement // that it has not taken back
	next      announcement   // that it has not made; zero: none
	tries     int            // to find an announcement
	waited    bool
	ahead     string
	isOnly    bool   // ahead is the only predecessor
	events    []bool // of ahead, not heard of yet: whether it was released

	// The fast path.
	wasAlone bool
	last     int // sequence number
	lastIn   int64
}

// NewNodeQueue returns a model of n clients.
func NewNodeQueue(seed uint64, n int, without NodeRule) *NodeQueue {
	q := &NodeQueue{
		Without: without, rng: rand.New(rand.NewPCG(seed, 2)), announcements: make(map[announcement]announced),
	}
	for i := range n {
		q.clients = append(q.clients, &queuer{isOld: i%4 == 3})
	}
	return q
}

func (q *NodeQueue) has(r NodeRule) bool { return q.Without&r == 0 }

func (q *NodeQueue) chance(percent int) bool { return q.rng.IntN(100) < percent }

func (q *NodeQueue) violation(format string, args ...any) {
	q.Violations = append(q.Violations, fmt.Sprintf(format, args...))
}

// Run makes steps, then lets all requests come to their end.
func (q *NodeQueue) Run(steps int) {
	for range steps {
		q.step(q.clients[q.rng.IntN(len(q.clients))], true)
		if q.dir != nil && len(q.dir.children) == 0 && q.chance(20) {
			q.dir = nil
		}
		if len(q.Violations) > 0 {
			return
		}
	}
	for range 200 * len(q.clients) {
		for _, c := range q.clients {
			q.step(c, false)
		}
	}
	for i, c := range q.clients {
		if c.phase != idle {
			q.violation("client %d never gets the lock: phase %d, behind %q", i, c.phase, c.ahead)
		}
	}
}

// step has c do what it can do next. Trouble says whether anything may go wrong.
func (q *NodeQueue) step(c *queuer, trouble bool) {
	if c.reply != nil {
		take := c.reply
		c.reply = nil
		take()
		return
	}
	if trouble && c.phase != idle && q.chance(3) { // its session ends, or its caller has gone
		if c.phase != holding {
			q.leave(c)
		} else {
			c.phase = expiring
		}
		return
	}
	if trouble && c.phase == waiting && q.chance(2) { // by hand
		q.remove(c.name, false)
	}
	switch c.phase {
	case idle:
		for _, a := range c.announced {
			if q.chance(30) {
				delete(q.announcements, a)
				c.announced = slices.DeleteFunc(c.announced, func(b announcement) bool { return a == b })
			}
		}
		if trouble {
			q.join(c, trouble)
		}
	case joining:
		q.announce(c)
	case looking:
		q.find(c)
	case waiting:
		q.wait(c)
	case holding:
		q.hold(c, trouble)
	case expiring:
		q.remove(c.name, false)
		c.phase = idle
	}
}

// create adds a child. It reports whether that is alone.
func (q *NodeQueue) create(c *queuer) bool {
	q.transactions++
	if q.dir == nil {
		q.dir = &lockNode{created: q.transactions, children: make(map[string]*child)}
	}
	c.name = fmt.Sprintf("%c%d-%d", c.kind, q.transactions, q.dir.sequence)
	c.created = q.dir.created
	q.dir.children[c.name] = &child{name: c.name, kind: c.kind, sequence: q.dir.sequence}
	q.dir.sequence++
	return len(q.dir.children) == 1
}

func (q *NodeQueue) remove(name string, released bool) {
	if q.dir == nil || q.dir.children[name] == nil {
		return
	}
	for _, w := range q.dir.children[name].watchers {
		if w.ahead == name {
			w.events = append(w.events, released)
		}
	}
	delete(q.dir.children, name)
}

// longFrom is how many children make a queue long.
const longFrom = 3

func (q *NodeQueue) join(c *queuer, trouble bool) {
	c.kind, c.waited, c.tries, c.ahead, c.events, c.next = writing, false, 0, "", nil, announcement{}
	if q.chance(40) {
		c.kind = reading
	}
	if c.wasAlone && c.kind == writing && q.chance(50) {
		q.joinFast(c)
		return
	}
	c.wasAlone = false
	alone := q.create(c)
	q.dir.version++
	c.version = q.dir.version
	long := len(q.dir.children) > longFrom
	sequence := q.dir.sequence - 1
	if trouble && q.chance(10) { // the answer is lost, and the client finds its node again
		c.version, c.phase, c.waited = 0, looking, true
		c.reply = func() {
			if !q.has(VersionOfItsOwn) && q.dir != nil {
				c.version = q.dir.version
			}
		}
		return
	}
	c.phase = joining
	c.reply = func() {
		switch {
		case alone:
			c.wasAlone, c.last, c.lastIn = true, sequence, c.created
			q.grant(c)
		case !long || c.isOld:
			c.version, c.phase, c.waited = 0, looking, true
		default:
			c.phase, c.waited, c.next = looking, true, announcement{c.created, c.version}
			if c.kind == writing {
				c.phase = joining
			}
		}
	}
}

// joinFast creates a child without a version. The sequence number tells whether it is alone.
func (q *NodeQueue) joinFast(c *queuer) {
	q.create(c)
	sequence := q.dir.sequence - 1
	alone := sequence == c.last+1 && c.created == c.lastIn
	c.version, c.wasAlone, c.last = 0, alone, sequence
	c.phase = joining
	c.reply = func() {
		switch {
		case alone:
			q.grant(c)
		case q.has(FastLeaves):
			q.leave(c)
		default:
			c.phase, c.waited = looking, true
		}
	}
}

func (q *NodeQueue) leave(c *queuer) {
	q.remove(c.name, !q.has(HoldersSignal))
	c.phase, c.reply = idle, nil
}

func (q *NodeQueue) announce(c *queuer) {
	a := announced{name: c.name, writer: c.name}
	c.phase = looking
	if c.kind == reading {
		a.writer = c.ahead
		q.watch(c, c.ahead, c.isOnly)
	}
	q.announcements[c.next] = a
	c.announced = append(c.announced, c.next)
	c.next = announcement{}
}

// find looks for an announcement some times, and then lists.
func (q *NodeQueue) find(c *queuer) {
	const most = 3
	if c.version == 0 || c.tries == most {
		q.list(c)
		return
	}
	c.tries++
	found, ok := q.announcements[announcement{c.created, c.version - 1}]
	for v := c.version - 2; !ok && !q.has(VersionBefore) && v > 0; v-- {
		found, ok = q.announcements[announcement{c.created, v}]
	}
	if !ok {
		return
	}
	c.reply = func() {
		c.version = 0
		ahead := found.name
		if c.kind == reading || !q.has(WritersFindReaders) {
			ahead = found.writer
		}
		q.ByAnnouncement++
		q.follow(c, ahead, !q.has(OneOfSeveral))
	}
}

// follow has c wait for the node ahead. A reader first announces whom it waits for.
func (q *NodeQueue) follow(c *queuer, ahead string, only bool) {
	if c.next != (announcement{}) && c.kind == reading {
		c.ahead, c.isOnly, c.phase = ahead, only, joining
		return
	}
	q.watch(c, ahead, only)
}

// list finds the predecessors of c.
func (q *NodeQueue) list(c *queuer) {
	own := (*child)(nil)
	if q.dir != nil {
		own = q.dir.children[c.name]
	}
	if own == nil {
		c.phase = idle
		return
	}
	var last *child
	count := 0
	for _, o := range q.dir.children {
		if o.sequence < own.sequence && (c.kind == writing || o.kind == writing) {
			if count++; last == nil || o.sequence > last.sequence {
				last = o
			}
		}
	}
	c.reply = func() {
		if count == 0 {
			q.grant(c)
			return
		}
		q.follow(c, last.name, count == 1)
	}
}

// watch has c wait for a change of the node ahead.
func (q *NodeQueue) watch(c *queuer, ahead string, only bool) {
	c.ahead, c.isOnly, c.events = ahead, only, nil
	o := (*child)(nil)
	if q.dir != nil {
		o = q.dir.children[ahead]
	}
	switch {
	case o != nil:
		o.watchers = append(o.watchers, c)
		c.phase = waiting
	case !q.has(GoneBeforeWatched):
		q.grant(c)
	default:
		c.phase, c.ahead = looking, ""
	}
}

func (q *NodeQueue) wait(c *queuer) {
	if q.has(WaitersHaveNodes) && !q.hasNode(c) {
		c.phase = idle
		return
	}
	if len(c.events) == 0 {
		return
	}
	released := c.events[0]
	c.ahead, c.events = "", nil
	if released || c.isOnly {
		q.grant(c)
		return
	}
	c.phase = looking
}

func (q *NodeQueue) hasNode(c *queuer) bool { return q.dir != nil && q.dir.children[c.name] != nil }

// grant has c hold the lock, unless it knows that its node is gone.
func (q *NodeQueue) grant(c *queuer) {
	if q.has(WaitersHaveNodes) && !q.hasNode(c) {
		c.phase = idle
		return
	}
	c.phase = holding
	q.Granted++
	for _, o := range q.clients {
		if o != c && o.phase == holding && (c.kind == writing || o.kind == writing) {
			q.violation("%s and %s hold", c.name, o.name)
		}
	}
}

func (q *NodeQueue) hold(c *queuer, trouble bool) {
	switch {
	case !q.hasNode(c):
		c.phase = idle
	case trouble && c.kind == writing && q.chance(10):
		q.downgrade(c)
	case q.chance(40):
		q.remove(c.name, c.waited && c.kind == writing)
		c.phase = idle
	}
}

// downgrade replaces the child by a reader's with the same sequence number. Who watches it
// sees a change, which lets nobody in.
func (q *NodeQueue) downgrade(c *queuer) {
	own := q.dir.children[c.name]
	delete(q.dir.children, c.name)
	for _, w := range own.watchers {
		if w.ahead == c.name {
			w.ahead, w.phase = "", looking
		}
	}
	c.kind, c.name, c.wasAlone = reading, "r"+c.name, false
	q.dir.children[c.name] = &child{name: c.name, kind: reading, sequence: own.sequence}
}
