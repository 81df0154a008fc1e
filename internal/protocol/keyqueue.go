package protocol

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// A KeyQueue is a model of locks as keys on a server that counts revisions, as
// etcd does. The queue of a lock is the order in which its keys were created. Who
// waits watches the nearest key before its own that it conflicts with. A writer
// that releases marks its key as released in place of deleting it, if another key
// stands behind it: that tells the next in line that nothing is before it any more,
// with no further question. Whoever comes next deletes the marked key.
//
// The answer to a request to join lists a few keys. In a longer queue the tails say who
// has joined last of each kind: a request that joins overwrites the one of its kind.
//
// A history is a random interleaving of the steps of all parties. Each request to
// the server is one step, what it answers is taken in a later one, and events come
// in order, at any time.
type KeyQueue struct {
	Without KeyRule

	rng      *rand.Rand
	revision int64
	keys     map[string]*key
	watchers map[string][]*contender
	tails    map[kind]*tail
	parties  []*contender
	late     []func() // requests that were sent twice, and arrive once more

	Granted, ByEvent int
	Violations       []string
}

// A KeyRule is one thing that the protocol of KeyQueue asks for.
type KeyRule uint

const (
	WritersMark     KeyRule = 1 << iota // a reader deletes its key: others may hold beside it
	LookAfterGone                       // that a key was deleted proves nothing about those before it
	LookAfterWatch                      // what happened before a watch began is found by a look
	FreshNames                          // the name of a key is not used again while a release of it may arrive once more
	DeleteAsSeen                        // a marked key is deleted only as it was seen: its name may be used again
	FormerWriters                       // a writer looks for writers that became readers, behind a marked key too
	JoinsMoveTails                      // who joins overwrites the tail of its kind
	BothTails                           // a writer needs both tails: without one of them the last request is unknown
	WaitersHaveKeys                     // a waiter hears that somebody has deleted its key before it hears that it is next
)

type kind byte

const (
	writing kind = 'w'
	reading kind = 'r'
	former  kind = 'd' // reads, and wrote before
)

type key struct {
	name     string
	kind     kind
	created  int64
	released bool
}

// A tail names the last request of its kind that has joined since the tail was made.
type tail struct {
	name     string // empty: none has joined
	revision int64  // of the last write
}

type phase int

const (
	idle phase = iota
	joining
	waiting
	looking
	holding
	expiring // believes in nothing any more, and the server does not know yet
)

// A contender asks for the lock again and again. It is a client: of its keys one
// is in use, the other may be marked.
type contender struct {
	phase   phase
	kind    kind
	name    string
	spent   int // names that are not used again
	created int64
	ahead   string
	seen    int64
	passed  key      // the marked key that it passed over
	marked  key      // its own, that it does not know to be gone
	since   int64    // when its watch began; zero: it has none
	events  []change // not heard of yet
	reply   func()   // to be taken

	aheadSince int64 // when the key ahead was created
}

type change struct {
	revision int64
	key      key
	gone     bool
}

// NewKeyQueue returns a model of n clients.
func NewKeyQueue(seed uint64, n int, without KeyRule) *KeyQueue {
	q := &KeyQueue{
		Without: without, rng: rand.New(rand.NewPCG(seed, 1)),
		keys: make(map[string]*key), watchers: make(map[string][]*contender), tails: make(map[kind]*tail),
	}
	for range n {
		q.parties = append(q.parties, &contender{})
	}
	return q
}

// Run makes steps, then lets all requests come to their end.
func (q *KeyQueue) Run(steps int) {
	for range steps {
		q.step(q.parties[q.rng.IntN(len(q.parties))], true)
		if q.chance(2) { // with the lease of whoever wrote it
			delete(q.tails, []kind{writing, reading}[q.rng.IntN(2)])
		}
		if len(q.late) > 0 && q.chance(5) {
			q.late[0]()
			q.late = q.late[1:]
		}
		if len(q.Violations) > 0 {
			return
		}
	}
	for range 200 * len(q.parties) {
		for _, c := range q.parties {
			q.step(c, false)
		}
	}
	for i, c := range q.parties {
		if c.phase != idle {
			q.violation("client %d never gets the lock: phase %d, behind %s", i, c.phase, c.ahead)
		}
	}
}

func (q *KeyQueue) violation(format string, args ...any) {
	q.Violations = append(q.Violations, fmt.Sprintf(format, args...))
}

func (q *KeyQueue) chance(percent int) bool { return q.rng.IntN(100) < percent }

// step has c do what it can do next. Trouble says whether anything may go wrong.
func (q *KeyQueue) step(c *contender, trouble bool) {
	if c.reply != nil {
		take := c.reply
		c.reply = nil
		take()
		return
	}
	if trouble && c.phase == waiting && q.chance(2) { // by hand
		q.remove(c.name, c.created)
	}
	switch c.phase {
	case idle:
		if trouble {
			q.join(c)
		}
	case waiting:
		q.wait(c, trouble)
	case looking:
		q.look(c)
	case holding:
		q.hold(c, trouble)
	case expiring:
		q.remove(c.name, c.created)
		c.phase = idle
	}
	if c.phase == idle && c.marked.name != "" && q.chance(20) {
		q.remove(c.marked.name, c.marked.created)
		c.marked = key{}
	}
}

func (q *KeyQueue) change(k key, gone bool) {
	q.revision++
	for _, c := range q.watchers[k.name] {
		c.events = append(c.events, change{q.revision, k, gone})
	}
}

func (q *KeyQueue) put(name string, k kind) *key {
	made := &key{name: name, kind: k, created: q.revision + 1}
	q.keys[name] = made
	q.change(*made, false)
	return made
}

// remove deletes the key that was created at a revision.
func (q *KeyQueue) remove(name string, created int64) {
	k := q.keys[name]
	if k == nil || k.created != created && q.Without&DeleteAsSeen == 0 {
		return
	}
	delete(q.keys, name)
	q.change(*k, true)
}

// join puts a key and finds the nearest rival. A client has two names by turns; the
// marked key of the other one goes with the same request.
func (q *KeyQueue) join(c *contender) {
	c.kind = writing
	if q.chance(40) {
		c.kind = reading
	}
	base := fmt.Sprintf("%c%d.%d", c.kind, slices.Index(q.parties, c), c.spent)
	c.name = base
	if c.marked.name == base {
		c.name = base + "'"
	}
	rival, seen, known := q.ahead(c.kind)
	own := q.put(c.name, c.kind)
	short := q.tails[writing] == nil && q.chance(80) // a request that finds no tail of writers moves none
	if t := q.tails[c.kind]; t != nil && !short && (q.Without&JoinsMoveTails == 0 || q.chance(50)) {
		*t = tail{c.name, own.created}
	}
	if c.marked.name != "" {
		q.remove(c.marked.name, c.marked.created)
		c.marked = key{}
	}
	c.created, c.seen, c.phase, c.passed = own.created, q.revision, joining, key{}
	c.reply = func() {
		if !known {
			q.makeTails()
			c.phase = looking
			return
		}
		q.behind(c, rival)
		if seen > 0 {
			c.seen = seen
		}
	}
}

// keysListed is how many keys the answer to a request to join lists.
const keysListed = 2

// ahead returns the nearest rival of who joins now. If there are more than the answer
// lists, it is whom the tails name, as it was at the revision seen, if they name one.
func (q *KeyQueue) ahead(k kind) (rival key, seen int64, known bool) {
	rivals := 0
	for _, other := range q.keys {
		if k == writing || other.kind == writing {
			rivals++
		}
	}
	if rivals <= keysListed {
		return q.nearest(k, q.revision+1), 0, true
	}
	last := q.tails[writing]
	if other := q.tails[reading]; k == writing && q.Without&BothTails != 0 {
		if last == nil || other != nil && other.revision > last.revision {
			last = other
		}
	} else if k == writing && (other == nil || last == nil) {
		return key{}, 0, false
	} else if k == writing && other.revision > last.revision {
		last = other
	}
	if last == nil || last.name == "" {
		return key{}, 0, false
	}
	return key{name: last.name, created: last.revision}, last.revision, true
}

func (q *KeyQueue) makeTails() {
	for _, k := range []kind{writing, reading} {
		if q.tails[k] == nil {
			q.revision++
			q.tails[k] = &tail{revision: q.revision}
		}
	}
}

// nearest returns the last key before a revision that a request of that kind
// conflicts with, or a zero key.
func (q *KeyQueue) nearest(k kind, before int64) key {
	var last key
	for _, other := range q.keys {
		if other.created < before && other.created > last.created && (k == writing || other.kind == writing) {
			last = *other
		}
	}
	return last
}

// behind goes on with the rival that an answer named.
func (q *KeyQueue) behind(c *contender, rival key) {
	q.unwatch(c)
	if rival.name == "" || rival.released {
		c.passed = rival
		q.grant(c)
		return
	}
	c.phase, c.ahead, c.aheadSince, c.since = waiting, rival.name, rival.created, 0
}

func (q *KeyQueue) unwatch(c *contender) {
	q.watchers[c.ahead] = slices.DeleteFunc(q.watchers[c.ahead], func(o *contender) bool { return o == c })
	c.ahead, c.since, c.events = "", 0, nil
}

func (q *KeyQueue) wait(c *contender, trouble bool) {
	switch {
	case !q.stands(c) && q.Without&WaitersHaveKeys == 0:
		q.unwatch(c)
		c.phase = idle
	case trouble && q.chance(5): // its caller has gone, or its lease has ended
		q.unwatch(c)
		q.remove(c.name, c.created)
		c.phase = idle
	case c.since == 0:
		q.watchers[c.ahead] = append(q.watchers[c.ahead], c)
		c.since = q.revision
		if c.since > c.seen && q.Without&LookAfterWatch == 0 {
			q.check(c)
		}
	case len(c.events) > 0:
		e := c.events[0]
		c.events = c.events[1:]
		q.hear(c, e)
	}
}

// check reads c's key and the one ahead. If both are as they were, so is the queue before
// c.
func (q *KeyQueue) check(c *contender) {
	ahead := q.keys[c.ahead]
	if ahead == nil || ahead.created != c.aheadSince || ahead.released || !q.stands(c) {
		c.phase = looking
		return
	}
	c.seen = q.revision
}

// hear takes an event of the key ahead.
func (q *KeyQueue) hear(c *contender, e change) {
	switch {
	case e.revision <= c.seen:
	case !e.gone && e.key.released:
		q.unwatch(c)
		c.passed = e.key
		q.ByEvent++
		q.grant(c)
	case e.gone && q.Without&LookAfterGone != 0:
		q.unwatch(c)
		q.grant(c)
	case e.gone:
		c.phase = looking
	}
}

func (q *KeyQueue) look(c *contender) {
	if !q.stands(c) {
		q.unwatch(c)
		c.phase = idle
		return
	}
	rival, at := q.nearest(c.kind, c.created), q.revision
	if c.kind == writing && (rival.name == "" || rival.released) && q.Without&FormerWriters == 0 {
		for _, other := range q.keys {
			if other.kind == former {
				rival = *other
			}
		}
	}
	c.reply = func() {
		watched, since, events := c.ahead, c.since, c.events
		if rival.name == watched && since > 0 { // the watch goes on
			c.seen, c.phase = at, waiting
			c.events = events
			return
		}
		q.behind(c, rival)
		c.seen = at
	}
}

// grant has c hold the lock, unless it knows that its key is gone.
func (q *KeyQueue) grant(c *contender) {
	if !q.stands(c) && q.Without&WaitersHaveKeys == 0 {
		c.phase = idle
		return
	}
	c.phase = holding
	q.Granted++
	for _, other := range q.parties {
		if other != c && other.phase == holding && (c.kind == writing || other.kind == writing) {
			q.violation("%s and %s hold at revision %d", c.name, other.name, q.revision)
		}
	}
}

func (q *KeyQueue) hold(c *contender, trouble bool) {
	switch {
	case !q.stands(c):
		c.phase = idle
	case trouble && q.chance(5):
		c.phase = expiring // its process believes in nothing when the server lets go
	case trouble && c.kind == writing && q.chance(15):
		q.downgrade(c)
	case q.chance(60):
		q.release(c)
	}
}

func (q *KeyQueue) downgrade(c *contender) {
	if !q.stands(c) {
		return
	}
	q.remove(c.name, c.created)
	own := q.put("d"+c.name, former)
	c.kind, c.name, c.created = former, own.name, own.created
}

func (q *KeyQueue) stands(c *contender) bool {
	own := q.keys[c.name]
	return own != nil && own.created == c.created
}

// release is one request, which may arrive twice: it deletes the key if none is
// behind it, else it marks it, and deletes the marked key that c had passed over. It asks
// for no proof that the key is still the one of that hold.
func (q *KeyQueue) release(c *contender) {
	sent := *c
	c.phase = idle
	c.marked = q.carryOut(&sent)
	if q.chance(20) {
		q.late = append(q.late, func() { q.carryOut(&sent) })
		if q.Without&FreshNames == 0 {
			c.spent++
		}
	}
}

// carryOut returns the key that it has marked, if it has.
func (q *KeyQueue) carryOut(c *contender) (marked key) {
	mark := (c.kind == writing || c.kind == reading && q.Without&WritersMark != 0) && q.anyBehind(c)
	own := q.keys[c.name]
	if mark && own == nil { // the server refuses all of it
		return key{}
	}
	if c.passed.name != "" {
		q.remove(c.passed.name, c.passed.created)
	}
	switch {
	case mark:
		own.released = true
		q.change(*own, false)
		return *own
	case own != nil:
		q.remove(own.name, own.created)
	}
	return key{}
}

func (q *KeyQueue) anyBehind(c *contender) bool {
	for _, other := range q.keys {
		if other.created > c.created {
			return true
		}
	}
	return false
}
