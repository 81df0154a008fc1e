package memory

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A lock is what the server knows of one name in use.
type lock struct {
	writer  *hold
	readers []*hold
	queue   []*waiter
	phase   uint64 // the readers' token
	timer   *time.Timer
}

// A hold is a lock that is held, as the server sees it.
type hold struct {
	hold    backend.Hold // as the client has it
	client  *Backend
	mode    backend.Mode
	token   uint64
	since   time.Duration
	expires time.Duration
	seq     int64 // of the last count of entries
	entries int
	broken  bool
}

type waiter struct {
	request backend.Request
	ballot  backend.Ballot
	client  *Backend
	since   time.Duration
	hold    *hold
	err     error
	ready   chan struct{} // closed when hold or err is set
}

// extend keeps h for its TTL from now, unless it was left to expire: what was sent before that may come later.
func (h *hold) extend(now time.Duration) {
	if h.client != nil {
		h.expires = now + h.hold.TTL
	}
}

// isOpen reports whether one more holder of mode fits in.
func (l *lock) isOpen(mode backend.Mode) bool {
	return l.writer == nil && (mode == backend.Shared || len(l.readers) == 0)
}

func (l *lock) isUnused() bool { return l.writer == nil && len(l.readers) == 0 && len(l.queue) == 0 }

func (l *lock) holders() []*hold {
	if l.writer != nil {
		return []*hold{l.writer}
	}
	return slices.Clone(l.readers)
}

func (l *lock) has(h *hold) bool { return l.writer == h || slices.Contains(l.readers, h) }

func (l *lock) add(h *hold) {
	if h.mode == backend.Exclusive {
		l.writer = h
	} else {
		l.readers = append(l.readers, h)
	}
}

func (l *lock) remove(h *hold) {
	if l.writer == h {
		l.writer = nil
	}
	l.readers = slices.DeleteFunc(l.readers, func(r *hold) bool { return r == h })
}

// removeExpired ends the holds whose time is over.
func (l *lock) removeExpired(now time.Duration) {
	if l.writer != nil && now >= l.writer.expires {
		l.writer = nil
	}
	l.readers = slices.DeleteFunc(l.readers, func(h *hold) bool { return now >= h.expires })
}

// nextExpiry is when the first of the holders' time is over.
func (l *lock) nextExpiry() time.Duration {
	first := slices.MinFunc(l.holders(), func(a, b *hold) int { return cmp.Compare(a.expires, b.expires) })
	return first.expires
}

// endWaits ends every wait for which why has a reason.
func (l *lock) endWaits(why func(*waiter) error) {
	l.queue = slices.DeleteFunc(l.queue, func(w *waiter) bool {
		if w.err = why(w); w.err == nil {
			return false
		}
		close(w.ready)
		return true
	})
}

// grantNext grants to the queue what can be granted. It plans the next look at the
// lock, as nobody calls when a lease runs out, and forgets a lock that is not used.
func (s *Server) grantNext(name string, l *lock, now time.Duration) {
	l.removeExpired(now)
	for len(l.queue) > 0 && l.isOpen(l.queue[0].request.Mode) {
		w := l.queue[0]
		l.queue = l.queue[1:]
		w.hold = s.grant(l, w.client, &w.request, w.ballot, now)
		close(w.ready)
	}
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	switch {
	case len(l.queue) > 0:
		l.timer = time.AfterFunc(l.nextExpiry()-now, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.locks[name] == l {
				s.grantNext(name, l, s.now())
			}
		})
	case l.isUnused():
		s.removeLock(name)
	}
}

// removeLock deletes a name. A map keeps the room that it once needed, so after very many
// names there is a new one.
func (s *Server) removeLock(name string) {
	delete(s.locks, name)
	if n := len(s.locks); s.most >= 1024 && n < s.most/8 {
		s.locks, s.most = maps.Collect(maps.All(s.locks)), n
	}
}

// grant lets r in. A writer and the first reader of a phase get a new token.
func (s *Server) grant(l *lock, b *Backend, r *backend.Request, v backend.Ballot, now time.Duration) *hold {
	if r.Mode == backend.Exclusive || len(l.readers) == 0 {
		l.phase = s.newToken(v, now)
	}
	h := &hold{client: b, mode: r.Mode, token: l.phase, since: now}
	h.hold = backend.Hold{Request: *r, Token: h.token, Granted: r.TTL, TellsWanted: true, WantedAtOnce: true, State: h}
	h.extend(now)
	l.add(h)
	return h
}

// newToken is time in µs, so that it grows across restarts too, or the proposal
// that v brings.
func (s *Server) newToken(v backend.Ballot, now time.Duration) uint64 {
	s.token = max(s.token+1, uint64(s.clock(now).UnixMicro()))
	if v.Token > s.token && v.Token <= uint64(s.clock(now+backend.TokenLead).UnixMicro()) {
		s.token = v.Token
	}
	return s.token
}

// update calls do if bh still stands, else it reports ErrLost.
func (s *Server) update(bh *backend.Hold, do func(*lock, *hold, time.Duration)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, l, now := bh.State.(*hold), s.locks[bh.Name], s.now()
	if l != nil {
		l.removeExpired(now)
		defer s.grantNext(bh.Name, l, now)
	}
	switch {
	case h.broken:
		return backend.Fail(backend.ErrLost, backend.ErrBroken)
	case l == nil || !l.has(h):
		return backend.ErrLost
	}
	do(l, h, now)
	return nil
}

// removeClient ends all holds of b and all that it waits for. It serves b no more.
func (s *Server) removeClient(b *Backend) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b.gone = true
	for name, l := range s.locks {
		l.endWaits(func(w *waiter) error {
			if w.client != b {
				return nil
			}
			return backend.ErrClosed
		})
		for _, h := range l.holders() {
			if h.client == b {
				l.remove(h)
			}
		}
		s.grantNext(name, l, s.now())
	}
}
