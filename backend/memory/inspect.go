package memory

import (
	"context"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// Ping implements backend.Pinger. The server has no version.
func (b *Backend) Ping(ctx context.Context) (version string, err error) {
	return "", b.exchange(ctx, func() error { return nil })
}

// Examine implements backend.Examiner.
func (b *Backend) Examine(ctx context.Context, report func(backend.Finding)) error {
	err := b.exchange(ctx, func() error { return nil })
	if err == nil {
		report(backend.Good("scope", "locks are in the memory of this process, and exclude nobody outside it"))
	}
	return err
}

// Inspect implements backend.Inspector.
func (b *Backend) Inspect(ctx context.Context, name string) (s backend.Snapshot, err error) {
	err = b.exchange(ctx, func() error {
		s = b.server.inspect(name)
		return nil
	})
	return s, err
}

// Names implements backend.Inspector.
func (b *Backend) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		var names []string
		err := b.exchange(ctx, func() error {
			names = b.server.names(prefix)
			return nil
		})
		if err != nil {
			yield("", err)
			return
		}
		for _, name := range names {
			if !yield(name, nil) {
				return
			}
		}
	}
}

// Break implements backend.Breaker. The holder hears of it at once.
func (b *Backend) Break(ctx context.Context, name string, token uint64) error {
	return b.exchange(ctx, func() error {
		broken := b.server.breakHolds(name, token)
		for _, h := range broken {
			h.hold.Lost(backend.ErrBroken)
		}
		if len(broken) == 0 {
			return backend.ErrNotHeld
		}
		return nil
	})
}

func (s *Server) inspect(name string) (out backend.Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, now := s.locks[name], s.now()
	if l == nil {
		return out
	}
	for _, h := range l.holders() {
		if now < h.expires {
			out.Holders = append(out.Holders, backend.Party{
				Label: h.hold.Label, Client: h.hold.ID.Client, Mode: h.mode, Entries: max(h.entries, 1),
				Since: s.clock(h.since), Left: h.expires - now, Token: h.token,
			})
		}
	}
	for _, w := range l.queue {
		out.Waiters = append(out.Waiters, backend.Party{
			Label: w.request.Label, Client: w.request.ID.Client, Mode: w.request.Mode, Since: s.clock(w.since),
		})
	}
	return out
}

// names returns the names in use that begin with prefix.
func (s *Server) names(prefix string) (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for name, l := range s.locks {
		if strings.HasPrefix(name, prefix) && l.isInUse(now) {
			names = append(names, name)
		}
	}
	return names
}

// isInUse reports whether anybody waits, or holds the lock still.
func (l *lock) isInUse(now time.Duration) bool {
	return len(l.queue) > 0 || slices.ContainsFunc(l.holders(), func(h *hold) bool { return now < h.expires })
}

// breakHolds ends the holds of that token.
func (s *Server) breakHolds(name string, token uint64) (broken []*hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, now := s.locks[name], s.now()
	if l == nil {
		return nil
	}
	l.removeExpired(now)
	for _, h := range l.holders() {
		if h.token == token {
			h.broken = true
			l.remove(h)
			broken = append(broken, h)
		}
	}
	if len(broken) > 0 && len(l.readers) > 0 && l.phase == token { // who joins them is not given what was broken
		l.phase = s.newToken(backend.Ballot{}, now)
	}
	s.grantNext(name, l, now)
	return broken
}
