package redis

import (
	"context"
	"sync"

	"github.com/dlock-go/dlock/backend"
)

const (
	// maxStrays is how many stray grants are given back at a time. Messages can be sent
	// again by whoever hears them; a grant that is not given back lasts for moments.
	maxStrays = 16

	// knownStrays is of how many it is known that they have been given back.
	knownStrays = 256
)

// Strays are the grants that nobody waits for. Each is given back once.
type strays struct {
	mu     sync.Mutex
	under  int             // how many are being given back
	known  map[string]bool // ids
	recent [knownStrays]string
	next   int
}

// begin reports whether the grant of id is to be given back. Then it needs an end.
func (s *strays) begin(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.under == maxStrays || s.known[id] {
		return false
	}
	if s.known == nil {
		s.known = make(map[string]bool, knownStrays)
	}
	delete(s.known, s.recent[s.next])
	s.known[id], s.recent[s.next] = true, id
	s.next = (s.next + 1) % knownStrays
	s.under++
	return true
}

func (s *strays) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.under--
}

// stray gives back what nobody waits for any more, if this client has asked for it. Most
// such grants are messages that come late, after all is over. Who gave up the id without
// knowing whether it was still asked for has had it refused.
func (b *Backend) stray(k key, id string) {
	if !b.ids.made(k, id) || !b.strays.begin(id) {
		return
	}
	begun := b.janitor.Go(func(ctx context.Context) {
		defer b.strays.end()
		ctx, cancel := backend.Bound(ctx, givingUp(unattended))
		defer cancel()
		backend.Retry(ctx, b.ending(k, id, false, unattended))
	})
	if !begun {
		b.strays.end()
	}
}
