package protocol

import (
	"cmp"
	"fmt"
)

// A QuorumConfig says what a history of a lock on several servers is made of.
type QuorumConfig struct {
	Seed           uint64
	Off            Rule
	Nodes, Clients int
	TTL, Length    int64
	Skew           int64 // between the clocks of two servers, at most
	Loss           float64
	Restart        int64 // how often a server comes back, on average; one at a time
	Snapshots      bool  // some come back with the data of some time before, the others empty
}

// A Quorum is one history of a lock that a majority of servers keeps.
type Quorum struct {
	sim
	QuorumConfig
	nodes   []*node
	clients []*voter

	grants     int
	used       int64
	Violations []string
}

// A node is one of the servers.
type node struct {
	*Quorum
	offset int64
	owner  id
	expiry int64
	token  int64
	marker int64 // since when it has known all it should; 0: nobody has looked
	saved  memory
}

// A memory is what a server knows, and can have written down.
type memory struct {
	owner                 id
	expiry, token, marker int64
}

func (n *node) time() int64 { return n.now + n.offset }

// delay is how long a server that came back empty keeps out: until what it
// forgot has ended by anybody's clock.
func (q *Quorum) delay() int64 { return q.TTL + 2*q.Skew }

// A ballot is a node's answer to who wants the lock.
type ballot struct {
	yes         bool
	token, time int64
}

func (n *node) acquire(i id) ballot {
	n.marker = cmp.Or(n.marker, n.time())
	if n.Off&Rejoin == 0 && n.time()-n.marker < n.delay() {
		return ballot{}
	}
	if n.owner != (id{}) && n.owner != i && n.expiry > n.time() {
		return ballot{}
	}
	if n.owner != i {
		n.owner, n.expiry = i, n.time()+n.TTL
	}
	return ballot{yes: true, token: n.token, time: n.time()}
}

// propose records the token, if i still has the lock here.
func (n *node) propose(i id, token int64) ballot {
	if n.owner != i || n.expiry <= n.time() {
		return ballot{}
	}
	n.token = max(n.token, token)
	return ballot{yes: true}
}

func (n *node) release(i id) ballot {
	if n.owner == i {
		n.owner = id{}
	}
	return ballot{yes: true}
}

// A voter is a client.
type voter struct {
	*Quorum
	number, tries int
	believes      int64 // until when; 0: not
}

// PlayQuorum runs one history.
func PlayQuorum(c QuorumConfig) *Quorum {
	q := &Quorum{sim: newSim(c.Seed), QuorumConfig: c}
	q.now = second
	for range c.Nodes {
		q.nodes = append(q.nodes, &node{Quorum: q, offset: 1e15 + q.upTo(c.Skew), marker: 1})
	}
	for i := range c.Clients {
		v := &voter{Quorum: q, number: i + 1}
		q.clients = append(q.clients, v)
		q.after(q.upTo(c.TTL), v.try)
	}
	if c.Snapshots {
		for _, n := range q.nodes {
			n.save()
		}
	}
	q.restart()
	for q.next(c.Length, func() {}) {
	}
	return q
}

// Grants is how many holds somebody believed in.
func (q *Quorum) Grants() int { return q.grants }

// restart lets one server lose its data, all or what is new, and the next one when
// that one has rejoined.
func (q *Quorum) restart() {
	q.after(q.delay()+q.upTo(2*q.Restart), func() {
		n := q.nodes[q.upTo(int64(len(q.nodes)))]
		was := memory{}
		if q.Snapshots && q.chance(0.5) {
			was = n.saved
		}
		n.owner, n.expiry, n.token, n.marker = was.owner, was.expiry, was.token, was.marker
		if q.Off&SameRun == 0 {
			n.marker = 0
		}
		q.restart()
	})
}

// save has a server write down what it knows, from time to time.
func (n *node) save() {
	n.saved = memory{n.owner, n.expiry, n.token, n.marker}
	n.after(n.upTo(2*n.TTL), n.save)
}

func (q *Quorum) majority() int { return len(q.nodes)/2 + 1 }

// ask sends a request to all nodes. Done is called once: with the answers of a
// majority that says yes, or with fewer when that cannot come any more.
func (q *Quorum) ask(do func(*node) ballot, done func(yes []ballot)) {
	var yes []ballot
	left, over := len(q.nodes), false
	count := func(b ballot) {
		left--
		if b.yes {
			yes = append(yes, b)
		}
		if !over && (len(yes) == q.majority() || left == 0) {
			over = true
			done(yes)
		}
	}
	for _, n := range q.nodes {
		if q.chance(q.Loss) {
			q.after(q.TTL/10, func() { count(ballot{}) })
			continue
		}
		q.after(q.wire(), func() {
			b := do(n)
			q.after(q.wire(), func() { count(b) })
		})
	}
}

func (q *Quorum) wire() int64 { return 100 + q.upTo(20*millisecond) }

func (v *voter) margin() int64 { return v.TTL/10 + v.TTL/500 }

// try takes the lock, keeps it for a while and gives it back.
func (v *voter) try() {
	v.tries++
	i, sent := id{client: v.number, n: v.tries}, v.now
	v.ask(func(n *node) ballot { return n.acquire(i) }, func(yes []ballot) {
		if len(yes) < v.majority() {
			v.leave(i)
			return
		}
		v.agree(i, sent, v.token(yes))
	})
}

// token is greater than what the majority knows, and not below its clocks.
func (v *voter) token(yes []ballot) (token int64) {
	for _, b := range yes {
		token = max(token, b.token+1)
		if v.Off&TokenFloor == 0 {
			token = max(token, b.time)
		}
	}
	return token
}

// agree makes the token known to a majority before the lock counts as held.
func (v *voter) agree(i id, sent, token int64) {
	if v.Off&TokenRound != 0 {
		v.hold(i, sent, token)
		return
	}
	v.ask(func(n *node) ballot { return n.propose(i, token) }, func(yes []ballot) {
		if len(yes) < v.majority() {
			v.leave(i)
			return
		}
		v.hold(i, sent, token)
	})
}

func (v *voter) hold(i id, sent, token int64) {
	until := sent + v.TTL - v.margin()
	if v.now >= until {
		v.leave(i)
		return
	}
	v.begins(until, token)
	v.after(min(v.upTo(v.TTL), until-v.now), func() {
		v.believes = 0
		v.leave(i)
	})
}

func (v *voter) begins(until, token int64) {
	v.grants++
	for _, o := range v.clients {
		if o.believes > v.now {
			v.wrong("client %d began while %d believed for another %d µs", v.number, o.number, o.believes-v.now)
		}
	}
	if token <= v.used {
		v.wrong("client %d began with token %d after %d", v.number, token, v.used)
	}
	v.used, v.believes = max(v.used, token), until
}

// leave gives back what it may have on every server, and tries again later.
func (v *voter) leave(i id) {
	v.ask(func(n *node) ballot { return n.release(i) }, func([]ballot) {})
	v.after(v.upTo(v.TTL/4), v.try)
}

func (q *Quorum) wrong(format string, args ...any) {
	q.Violations = append(q.Violations, fmt.Sprintf(format, args...))
}
