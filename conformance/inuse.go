package conformance

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// A watchedLock is a lock that clients use in every way, and that others look at meanwhile.
type watchedLock struct {
	*scenario
	inspector backend.Inspector

	mu     sync.Mutex
	labels map[uint64][]string // of those that were granted the lock, by token
	shown  map[uint64]string   // of those that were shown as its only holder
}

// inspectInUse looks at a lock while clients take it, share it, downgrade it and give it
// back. Each look makes sense by itself: nobody holds the lock and waits for it, nobody
// holds it beside a writer, and no time is in the future or below zero. Who was shown to
// hold it by a token has had that token.
func inspectInUse(s *scenario) {
	i := s.inspector()
	if i == nil {
		return
	}
	const clients, lookers = 4, 2
	w := &watchedLock{scenario: s, inspector: i, labels: make(map[uint64][]string), shown: make(map[uint64]string)}
	var locks []*dlock.RWMutex
	var labels []string
	for n := range clients {
		labels = append(labels, fmt.Sprintf("client%d", n))
		locks = append(locks, s.openWith(dlock.Options{Label: labels[n]}).RWMutex(s.name))
	}
	until := time.Now().Add(2 * s.TTL)
	each(clients+lookers, func(n int) {
		for time.Now().Before(until) && !s.Failed() {
			if n < clients {
				w.use(locks[n], labels[n])
			} else {
				w.look()
			}
		}
	})
	for token, label := range w.shown {
		if had := w.labels[token]; len(had) > 0 && !slices.Contains(had, label) {
			s.Errorf("%s was shown with token %d, which %q had", label, token, had)
		}
	}
}

// use takes the lock once, in one of the ways that there are.
func (w *watchedLock) use(m *dlock.RWMutex, label string) {
	lock, downgrades := m.Lock, !w.lacks(Downgrade) && rand.IntN(2) == 0
	if !w.lacks(Readers) && rand.IntN(3) == 0 {
		lock, downgrades = m.RLock, false
	}
	lease, err := lock(w.ctx)
	if err != nil {
		w.Errorf("lock: %v", err)
		return
	}
	w.mu.Lock()
	w.labels[lease.Token()] = append(w.labels[lease.Token()], label)
	w.mu.Unlock()
	time.Sleep(rand.N(w.TTL / 100))
	if downgrades {
		if err := lease.Downgrade(w.ctx); err != nil && !errors.Is(err, dlock.ErrLost) {
			w.Errorf("downgrade: %v", err)
		}
		time.Sleep(rand.N(w.TTL / 100))
	}
	if err := lease.Unlock(w.ctx); err != nil && !errors.Is(err, dlock.ErrLost) {
		w.Errorf("unlock: %v", err)
	}
}

// look inspects the lock once.
func (w *watchedLock) look() {
	s, err := w.inspector.Inspect(w.ctx, w.name)
	now := time.Now()
	if err != nil {
		w.Errorf("inspect: %v", err)
		return
	}
	told := make(map[string]bool)
	for _, p := range slices.Concat(s.Holders, s.Waiters) {
		if told[p.Label] && p.Label != "" && !w.ManyServers {
			w.Errorf("%s is told of twice: %+v", p.Label, s)
		}
		told[p.Label] = true
		if p.Since.After(now.Add(time.Second)) || p.Left < 0 { // a server's clock may be another
			w.Errorf("a time is in the future, or below zero: %+v", p)
		}
	}
	isWriter := func(p backend.Party) bool { return p.Mode == backend.Exclusive }
	if !slices.ContainsFunc(s.Holders, isWriter) {
		return
	}
	if len(s.Holders) > 1 && !w.ManyServers {
		w.Errorf("somebody holds the lock beside a writer: %+v", s)
	}
	if h := s.Holders[0]; h.Token != 0 && h.Label != "" {
		w.mu.Lock()
		w.shown[h.Token] = h.Label
		w.mu.Unlock()
	}
}
