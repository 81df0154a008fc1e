package redis

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
)

const (
	// maxUnclaimed is how many unclaimed grants are given back at a time. Messages can be sent
	// again by whoever hears them; a grant that is not given back lasts for moments.
	maxUnclaimed = 16

	// knownUnclaimed is of how many at most it is known that they have been given back.
	knownUnclaimed = 256
)

// unclaimedGrants are the grants that nobody waits for. Each is given back once.
type unclaimedGrants struct {
	mu    sync.Mutex
	under int             // how many are being given back
	known map[string]bool // ids, as of knownUnclaimed
}

// begin reports whether the grant of id is to be given back. Then it needs an end.
func (s *unclaimedGrants) begin(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.under == maxUnclaimed || s.known[id] {
		return false
	}
	if s.known == nil || len(s.known) == knownUnclaimed {
		s.known = make(map[string]bool)
	}
	s.known[id] = true
	s.under++
	return true
}

func (s *unclaimedGrants) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.under--
}

// releaseUnclaimed gives back a grant that nobody waits for any more, if this client has
// asked for it. Most such messages come late, when the hold is over already. An id that was
// given up while a request for it may still have been under way is refused by the server.
func (b *Backend) releaseUnclaimed(k key, id string) {
	if !b.ids.hasMade(k, id) {
		return
	}
	k, id = key(strings.Clone(string(k))), strings.Clone(id) // of a message, which may be long
	if !b.unclaimed.begin(id) {
		return
	}
	begun := b.janitor.Go(func(ctx context.Context) {
		defer b.unclaimed.end()
		ctx, cancel := backend.Bound(ctx, cleanupTimeout(unconfirmed))
		defer cancel()
		backend.Retry(ctx, b.cleanup(k, id, false, false, unconfirmed))
	})
	if !begun {
		b.unclaimed.end()
	}
}

// giveUp ends in the background whatever an id has or waits for. A login that is refused may be
// good in a moment, as while passwords change. With tomb the server may have granted the lock to id,
// which it keeps for its TTL: that is repeated however many are denied. If it has answered
// before, id may be in its queue.
func (b *Backend) giveUp(k key, id string, tomb, answered bool, ttl time.Duration) {
	retry := backend.Retry
	if !tomb {
		retry = b.denied.Retry
	}
	b.janitor.Go(func(ctx context.Context) {
		ctx, cancel := backend.Bound(ctx, cleanupTimeout(ttl))
		defer cancel()
		retry(ctx, b.cleanup(k, id, tomb, tomb || answered, ttl))
	})
}

// cleanupTimeout is how long that is tried.
func cleanupTimeout(ttl time.Duration) time.Duration { return ttl + 30*time.Second }

// cleanup releases id once. It has no token to tell: either nobody has had a hold
// under the id, or the release of that tells, and is repeated until it is answered. If insists,
// also a denial is an error.
func (b *Backend) cleanup(k key, id string, tomb, insists bool, ttl time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		call := releaseScript.callWith(k, 5, releaseArgs(id, tomb, 0)...)
		a, err := b.run(ctx, replyTimeout(ttl), releaseScript, call)
		if err != nil && (!isHopeless(err) || insists && kindOf(err) == backend.ErrAuth) {
			return fail(err)
		}
		b.checkLater(k, a)
		return nil
	}
}
