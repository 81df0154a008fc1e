package protocol

import (
	"cmp"
	"maps"
	"slices"
)

// An id is one entry of a client into the queue.
type id struct {
	client, n int
	shared    bool
}

const (
	grace    = 2 * 60 * second // for which a given-up ID is remembered
	minPoll  = 5 * second
	maxPoll  = 120 * second
	perQueue = second // of poll, for each that waits
)

// A server keeps one lock as the scripts do. Times in it are by its own clock.
type server struct {
	*World
	offset int64 // of its clock

	owner   id // zero: none
	expiry  int64
	token   int64
	readers map[id]int64 // until when
	queue   map[id]int64 // in which order
	alive   map[id]int64 // until when they are believed to wait
	dead    map[id]int64 // until when they are remembered
}

func newServer(w *World) *server {
	s := &server{World: w}
	s.wipe()
	return s
}

// wipe is the loss of all data.
func (s *server) wipe() {
	s.owner, s.expiry, s.token = id{}, 0, 0
	s.readers, s.queue = make(map[id]int64), make(map[id]int64)
	s.alive, s.dead = make(map[id]int64), make(map[id]int64)
}

func (s *server) time() int64 { return s.now + s.offset }

// expire forgets what is over.
func (s *server) expire() {
	now := s.time()
	over := func(_ id, until int64) bool { return until <= now }
	if s.owner != (id{}) && s.expiry <= now {
		s.owner = id{}
	}
	maps.DeleteFunc(s.readers, over)
	maps.DeleteFunc(s.dead, over)
	for i, until := range s.alive {
		if until <= now {
			s.dequeue(i)
		}
	}
}

func (s *server) dequeue(i id) {
	delete(s.queue, i)
	delete(s.alive, i)
}

// order lists who waits.
func (s *server) order() []id {
	return slices.SortedFunc(maps.Keys(s.queue), func(a, b id) int {
		return cmp.Or(cmp.Compare(s.queue[a], s.queue[b]), cmp.Compare(a.client, b.client), cmp.Compare(a.n, b.n))
	})
}

func (s *server) open(i id) bool {
	return s.owner == id{} && (i.shared || len(s.readers) == 0)
}

// next is the token of a grant to i.
func (s *server) next(i id) int64 {
	if !i.shared || len(s.readers) == 0 && !s.without(ReadersToken) {
		return max(s.token+1, s.time())
	}
	return s.token
}

func (s *server) grant(i id, d int64) {
	s.token = s.next(i)
	if i.shared {
		s.readers[i] = max(s.readers[i], s.time()+d)
	} else {
		s.owner, s.expiry = i, s.time()+d
	}
	s.granted(i, s.token)
}

// settle lets in whoever is next, and tells them.
func (s *server) settle() {
	s.expire()
	for _, i := range s.order() {
		if !s.open(i) {
			return
		}
		s.dequeue(i)
		d := min(s.TTL, s.handOver())
		c := s.clients[i.client]
		m := message{id: i, token: s.next(i), at: s.time(), expiry: s.time() + d}
		if !c.counted() {
			if s.without(CountFirst) {
				c.publish(m)
			}
			continue
		}
		s.grant(i, d)
		c.publish(m)
	}
}

// A status is the first word of a reply.
type status int

const (
	ok status = iota
	holds
	waits
	refused // the ID has been given up
	unknown // the ID neither holds nor waits
	over
)

type reply struct {
	status
	now, token, expiry int64
	rank               int64
	head               bool
	listens            bool // a grant would be heard
	waiting            int
	rest, poll         int64
}

func (s *server) acquire(i id, rank int64, heartbeat bool) reply {
	s.settle()
	if until := s.until(i); until > 0 {
		return reply{status: holds, now: s.time(), token: s.token, expiry: until, waiting: len(s.queue)}
	}
	if s.dead[i] > 0 {
		return reply{status: refused}
	}
	if _, in := s.queue[i]; !in {
		if heartbeat {
			return reply{status: unknown}
		}
		if s.open(i) && s.first(rank) {
			s.grant(i, s.TTL)
			return reply{status: holds, now: s.time(), token: s.token, expiry: s.time() + s.TTL, waiting: len(s.queue)}
		}
		s.queue[i] = cmp.Or(rank, max(s.time(), s.last()+1))
	}
	poll := min(max(int64(len(s.queue))*perQueue, minPoll), maxPoll)
	s.alive[i] = s.time() + 3*poll
	r := reply{status: waits, now: s.time(), rank: s.queue[i], waiting: len(s.queue), rest: s.rest(), poll: poll}
	r.head = s.order()[0] == i
	r.listens = s.clients[i.client].counted()
	return r
}

// until is when the hold of i ends, 0 if it has none.
func (s *server) until(i id) int64 {
	if s.owner == i {
		return s.expiry
	}
	return s.readers[i]
}

// first says whether somebody of that rank comes before all who wait.
func (s *server) first(rank int64) bool {
	if len(s.queue) == 0 {
		return true
	}
	return rank > 0 && rank <= s.queue[s.order()[0]]
}

func (s *server) last() (rank int64) {
	for _, r := range s.queue {
		rank = max(rank, r)
	}
	return rank
}

// rest is how long the last holder has.
func (s *server) rest() int64 {
	end := int64(0)
	if s.owner != (id{}) {
		end = s.expiry
	}
	for _, until := range s.readers {
		end = max(end, until)
	}
	return max(end-s.time(), 0)
}

// release ends the hold or the waiting of i. High is the greatest token that
// was handed on under it.
func (s *server) release(i id, high int64, bury bool) reply {
	r := reply{status: over}
	_, waited := s.queue[i]
	if until := s.until(i); until > s.time() {
		r.status = ok
	}
	if s.owner == i {
		s.owner = id{}
		if r.status == ok {
			s.token = max(s.token, high)
		}
	}
	delete(s.readers, i)
	s.dequeue(i)
	if bury && !s.without(Tombstone) {
		s.dead[i] = s.time() + grace
	}
	if !waited || !s.without(SettleOnCancel) {
		s.settle()
	}
	r.waiting, r.rest = len(s.queue), s.rest()
	return r
}

func (s *server) renew(i id, high int64) reply {
	until := s.until(i)
	if until <= s.time() {
		if _, broken := s.taken[i]; broken && s.without(TellOnRenewal) {
			return reply{status: ok, now: s.time(), token: s.token, expiry: s.time() + s.TTL}
		}
		return reply{status: over}
	}
	until = max(until, s.time()+s.TTL)
	if i.shared || s.owner != i {
		s.readers[i] = until
	} else {
		s.expiry, s.token = until, max(s.token, high)
	}
	return reply{status: ok, now: s.time(), token: s.token, expiry: until}
}

func (s *server) downgrade(i id, high int64) reply {
	switch {
	case s.owner == i && s.expiry > s.time():
		if !s.without(ReportOnDowngrade) {
			s.token = max(s.token, high)
		}
		s.readers[i] = max(s.expiry, s.time()+s.TTL)
		s.owner = id{}
	case s.readers[i] <= s.time():
		return reply{status: over}
	}
	if !s.without(SettleOnDowngrade) {
		s.settle()
	}
	return reply{status: ok, now: s.time(), expiry: s.readers[i]}
}

// breakHolds takes the lock away from those who hold it under token, once looked at.
func (s *server) breakHolds(token int64) {
	s.expire()
	meant := s.token == token
	if !meant && !s.without(BreakByToken) {
		return
	}
	if s.owner != (id{}) && !s.without(RaiseOnBreak) {
		s.token = max(s.token, s.expiry-1)
	}
	for i := range s.holders() {
		s.dead[i] = s.time() + grace
		if meant {
			s.takenAway(i, s.token)
		}
	}
	s.owner = id{}
	clear(s.readers)
	if !s.without(SettleOnBreak) {
		s.settle()
	}
}

// check is the releaser's look at what became of the lock.
func (s *server) check() reply {
	s.settle()
	if order := s.order(); len(order) > 0 {
		s.clients[order[0].client].publish(message{id: order[0], poll: true})
	}
	return reply{status: ok, waiting: len(s.queue), rest: s.rest()}
}
