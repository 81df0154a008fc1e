package memory

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A Server keeps the locks that its clients share. NewServer makes it.
type Server struct {
	start time.Time
	link  link // to all clients
	ops   atomic.Int64

	mu    sync.Mutex
	locks map[string]*state
	most  int    // how many were in locks since that was made
	idle  *state // in locks, though there is nothing to know of it
	token uint64
	drawn uint64        // the last token that a holder drew for itself
	ahead time.Duration // what its clock is ahead by
	since time.Duration // how far back it knows everything; zero: nobody has asked
}

// A state is what the server knows of one name in use.
type state struct {
	name    string
	writer  *grant
	readers []*grant
	queue   []*waiter
	phase   uint64 // the readers' token
	timer   *time.Timer
}

// A grant is a hold as the server sees it.
type grant struct {
	hold    backend.Hold
	client  *Backend
	of      *state
	expires time.Duration // since the server's start, as all its times
	seq     int64         // of the last count of entries
	entries int
}

type waiter struct {
	request backend.Request
	ballot  backend.Ballot
	client  *Backend
	grant   *grant
	err     error
	ready   chan struct{} // closed when grant or err is set
}

// NewServer returns a server without locks.
func NewServer() *Server {
	return &Server{start: time.Now(), locks: make(map[string]*state)}
}

// now is how long there has been this server.
func (s *Server) now() time.Duration { return time.Since(s.start) }

// micros is what the server's clock says.
func (s *Server) micros(now time.Duration) uint64 {
	return uint64(s.start.Add(now + s.ahead).UnixMicro())
}

// Freeze stops the server: no call gets an answer until Thaw. Its clock runs
// on.
func (s *Server) Freeze() { s.link.cut() }

// Thaw ends Freeze.
func (s *Server) Thaw() { s.link.heal() }

// Evict takes the lock from everybody who holds it, and tells them, as somebody does
// who deletes it: the next may have it before they hear of that.
func (s *Server) Evict(name string) {
	s.mu.Lock()
	var out []*grant
	if st := s.locks[name]; st != nil {
		out = st.holders()
		st.writer, st.readers = nil, nil
		s.settle(st, s.now())
	}
	s.mu.Unlock()
	for _, g := range out {
		if o := g.hold.Observer; o != nil {
			o.Lost(nil)
		}
	}
}

// Wipe forgets every hold and tells nobody. Those who wait stay in the queue,
// but for those who need a server that remembers: they are turned away.
func (s *Server) Wipe() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if clock := s.micros(now); s.drawn > clock { // holders were faster than it
		s.ahead += time.Duration(s.drawn-clock) * time.Microsecond
	}
	s.token, s.since = 0, 0
	for _, st := range s.locks {
		st.writer, st.readers = nil, nil
		st.turnAway(needsMemory)
		s.settle(st, now)
	}
}

// SetClock makes the clock from which the server takes its tokens ahead of the
// real one, or behind.
func (s *Server) SetClock(ahead time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead = ahead
}

// Ops returns how many requests have been sent to the server.
func (s *Server) Ops() int64 { return s.ops.Load() }

// Names returns how many names the server knows anything of.
func (s *Server) Names() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.idle != nil {
		return len(s.locks) - 1
	}
	return len(s.locks)
}

// Waiting returns how many requests wait for name.
func (s *Server) Waiting(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.locks[name]; st != nil {
		return len(st.queue)
	}
	return 0
}

// Entries returns how often the exclusive holder of name has entered it.
func (s *Server) Entries(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.locks[name]; st != nil && st.writer != nil {
		return max(st.writer.entries, 1)
	}
	return 0
}

// acquire grants r, or queues it, or does neither if it must not wait.
func (s *Server) acquire(b *Backend, r *backend.Request, v backend.Ballot, now time.Duration) (*grant, *waiter, error) {
	s.mu.Lock()
	if err := s.ready(b, v, now); err != nil {
		s.mu.Unlock()
		return nil, nil, err
	}
	st := s.state(r.Name)
	s.expire(st, now)
	if len(st.queue) == 0 && st.open(r.Mode) {
		defer s.mu.Unlock()
		return s.grant(st, b, r, v, now), nil, nil
	}
	if !r.Wait {
		defer s.mu.Unlock()
		s.settle(st, now)
		return nil, nil, nil
	}
	w := &waiter{request: *r, ballot: v, client: b, ready: make(chan struct{})}
	st.queue = append(st.queue, w)
	s.settle(st, now)
	holders := st.holders()
	s.mu.Unlock()
	for _, g := range holders {
		if o := g.hold.Observer; o != nil && g.client != b {
			o.Wanted()
		}
	}
	return nil, w, nil
}

// ready reports whether the server serves b, and remembers as much as v asks
// for.
func (s *Server) ready(b *Backend, v backend.Ballot, now time.Duration) error {
	switch {
	case b.gone:
		return backend.ErrClosed
	case v.Rejoin == 0:
		return nil
	}
	if s.since == 0 {
		s.since = max(now, 1)
	}
	if in := v.Rejoin - (now - s.since); in > 0 {
		return &backend.NotReadyError{In: in}
	}
	return nil
}

// release ends h, and reports ErrLost if it had ended before. One that is still
// there has never been anybody else's, even if its time is over.
func (s *Server) release(h *backend.Hold) error {
	if s.releaseUnwanted(h.State.(*grant)) {
		return nil
	}
	return s.update(h, func(st *state, g *grant, now time.Duration) {
		st.remove(g)
		s.settle(st, now)
	})
}

// releaseUnwanted ends a hold that nobody waits for.
func (s *Server) releaseUnwanted(g *grant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := g.of
	if st.writer != g || len(st.queue) > 0 {
		return false
	}
	st.writer = nil
	s.tidy(st)
	return true
}

// renew keeps h for its TTL from now.
func (s *Server) renew(h *backend.Hold) error {
	return s.update(h, func(_ *state, g *grant, now time.Duration) { g.extend(now) })
}

// endIn lets h go on for d, for nobody: its client may close.
func (s *Server) endIn(h *backend.Hold, d time.Duration) error {
	return s.update(h, func(st *state, g *grant, now time.Duration) {
		g.expires = now + d
		g.client, g.hold.Observer = nil, nil
		s.settle(st, now)
	})
}

// reenter records a count of entries, unless a newer one has overtaken it.
func (s *Server) reenter(h *backend.Hold, entries int, seq int64) error {
	return s.update(h, func(_ *state, g *grant, now time.Duration) {
		if seq > g.seq {
			g.seq, g.entries = seq, entries
		}
		if !h.Fixed {
			g.extend(now)
		}
	})
}

// raise has every later token exceed token.
func (s *Server) raise(h *backend.Hold, token uint64) error {
	return s.update(h, func(st *state, _ *grant, _ time.Duration) {
		s.token = max(s.token, token)
		st.phase = max(st.phase, token)
	})
}

// downgrade makes h shared and lets in the readers that are next.
func (s *Server) downgrade(h *backend.Hold) error {
	return s.update(h, func(st *state, g *grant, now time.Duration) {
		if st.writer == g {
			st.writer, st.phase = nil, g.hold.Token
			st.readers = append(st.readers, g)
			s.settle(st, now)
		}
	})
}

// transfer draws a new token for a hold that nobody has been granted after.
func (s *Server) transfer(h *backend.Hold) (token uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := h.State.(*grant)
	if g.of.writer != g {
		return 0, false
	}
	s.token++
	s.drawn = s.token
	return s.token, true
}

// age is how long before now g, which has not been renewed yet, was granted.
func (s *Server) age(g *grant, now time.Time) time.Duration {
	return now.Sub(s.start) + g.hold.TTL - g.expires
}

// update calls do if h still stands, else it reports ErrLost.
func (s *Server) update(h *backend.Hold, do func(*state, *grant, time.Duration)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, now := h.State.(*grant), s.now()
	st := g.of // forgotten, if no longer in locks
	if s.expire(st, now); !st.has(g) {
		if s.locks[st.name] == st {
			s.settle(st, now)
		}
		return backend.ErrLost
	}
	do(st, g, now)
	return nil
}

// abandon takes w out of the queue, or gives back what it was granted
// meanwhile.
func (s *Server) abandon(w *waiter) {
	s.mu.Lock()
	if w.grant != nil {
		s.mu.Unlock()
		_ = s.release(&w.grant.hold)
		return
	}
	defer s.mu.Unlock()
	if w.err != nil {
		return // it is in no queue any more
	}
	st := s.locks[w.request.Name]
	st.queue = without(st.queue, w)
	s.settle(st, s.now())
}

// forget ends all holds of b and all that it waits for. It serves b no more.
func (s *Server) forget(b *Backend) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b.gone = true
	for _, st := range s.locks {
		st.turnAway(func(w *waiter) error {
			if w.client != b {
				return nil
			}
			return backend.ErrClosed
		})
		for _, g := range st.holders() {
			if g.client == b {
				st.remove(g)
			}
		}
		s.settle(st, s.now())
	}
}

// settle grants to the queue what can be granted, and plans the next look at
// the lock: nobody calls when a lease runs out.
func (s *Server) settle(st *state, now time.Duration) {
	s.expire(st, now)
	for len(st.queue) > 0 && st.open(st.queue[0].request.Mode) {
		w := st.queue[0]
		st.queue = st.queue[1:]
		w.grant = s.grant(st, w.client, &w.request, w.ballot, now)
		close(w.ready)
	}
	if st.timer != nil {
		st.timer.Stop()
		st.timer = nil
	}
	switch {
	case len(st.queue) > 0:
		st.timer = time.AfterFunc(st.nextExpiry()-now, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.locks[st.name] == st {
				s.settle(st, s.now())
			}
		})
	case st.writer == nil && len(st.readers) == 0:
		s.tidy(st)
	}
}

// tidy forgets st, or rather the one before it: whoever locks one name again
// and again finds its state.
func (s *Server) tidy(st *state) {
	if s.idle != nil && s.idle != st {
		s.drop(s.idle.name)
	}
	st.queue = nil
	s.idle = st
}

// drop deletes a name. A map keeps the room that it once needed, so after very many
// names there is a new one.
func (s *Server) drop(name string) {
	delete(s.locks, name)
	if n := len(s.locks); s.most >= 1024 && n < s.most/8 {
		s.locks, s.most = maps.Collect(maps.All(s.locks)), n
	}
}

func (s *Server) state(name string) *state {
	if st := s.idle; st != nil && st.name == name {
		s.idle = nil
		return st
	}
	st := s.locks[name]
	if st == nil {
		st = &state{name: name}
		s.locks[name] = st
		s.most = max(s.most, len(s.locks))
	}
	return st
}

// grant lets r in. A writer and the first reader of a phase get a new token.
func (s *Server) grant(st *state, b *Backend, r *backend.Request, v backend.Ballot, now time.Duration) *grant {
	g := &grant{client: b, of: st}
	g.hold = backend.Hold{Request: *r, Granted: r.TTL, TellsWanted: true, WantedAtOnce: true, State: g}
	g.extend(now)
	if r.Mode == backend.Exclusive || len(st.readers) == 0 {
		st.phase = s.newToken(v, now)
	}
	g.hold.Token = st.phase
	if r.Mode == backend.Exclusive {
		st.writer = g
	} else {
		st.readers = append(st.readers, g)
	}
	return g
}

// newToken is time in µs, so that it grows across restarts too, or the proposal
// that v brings.
func (s *Server) newToken(v backend.Ballot, now time.Duration) uint64 {
	s.token = max(s.token+1, s.micros(now))
	if v.Token > s.token && v.Token <= s.micros(now+backend.TokenLead) {
		s.token = v.Token
	}
	return s.token
}

func (s *Server) expire(st *state, now time.Duration) {
	if st.writer != nil && now >= st.writer.expires {
		st.writer = nil
	}
	for i := len(st.readers) - 1; i >= 0; i-- {
		if now >= st.readers[i].expires {
			st.remove(st.readers[i])
		}
	}
}

func (g *grant) extend(now time.Duration) { g.expires = now + g.hold.TTL }

func (st *state) open(mode backend.Mode) bool {
	return st.writer == nil && (mode == backend.Shared || len(st.readers) == 0)
}

func (st *state) holders() []*grant {
	if st.writer != nil {
		return []*grant{st.writer}
	}
	return append([]*grant(nil), st.readers...)
}

func (st *state) has(g *grant) bool {
	if st.writer == g {
		return true
	}
	for _, r := range st.readers {
		if r == g {
			return true
		}
	}
	return false
}

func (st *state) remove(g *grant) {
	if st.writer == g {
		st.writer = nil
		return
	}
	st.readers = without(st.readers, g)
}

// turnAway ends every wait for which why has a reason.
func (st *state) turnAway(why func(*waiter) error) {
	st.queue = slices.DeleteFunc(st.queue, func(w *waiter) bool {
		if w.err = why(w); w.err == nil {
			return false
		}
		close(w.ready)
		return true
	})
}

// needsMemory turns away who needs a server that remembers.
func needsMemory(w *waiter) error {
	if w.ballot.Rejoin == 0 {
		return nil
	}
	return &backend.NotReadyError{In: w.ballot.Rejoin}
}

func (st *state) nextExpiry() time.Duration {
	var first time.Duration
	for _, g := range st.holders() {
		if first == 0 || g.expires < first {
			first = g.expires
		}
	}
	return first
}

// without removes x from list, in place.
func without[T comparable](list []T, x T) []T {
	for i, y := range list {
		if y == x {
			return append(list[:i], list[i+1:]...)
		}
	}
	return list
}
