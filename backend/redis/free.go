package redis

import (
	"context"
	"sync"

	"github.com/dlock-go/dlock/backend"
)

// A freeCache knows locks that were free when they were last asked for: they are
// asked for with a script of one key, which can do no more than take them.
// It forgets all when there are many, which costs one request more for each.
type freeCache struct {
	mu   sync.Mutex
	keys map[key]bool
}

// maxFree is how many locks a freeCache knows.
const maxFree = 1024

func newFreeCache() *freeCache { return &freeCache{keys: make(map[key]bool)} }

func (f *freeCache) has(k key) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.keys[k]
}

func (f *freeCache) add(k key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.keys) == maxFree {
		clear(f.keys)
	}
	f.keys[k] = true
}

func (f *freeCache) remove(k key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.keys, k)
}

// grab asks for a lock that was free the last time. It reports false if the answer
// says nothing, and the lock has to be asked for in full. Where replicas have to
// acknowledge, nothing else counts. After an error who asks again learns whether there
// is any hope.
func (c *acquisition) grab(ctx context.Context) (answer, bool) {
	if c.Mode != backend.Exclusive || c.b.replicas > 0 || !c.b.free.has(c.key) {
		return answer{}, false
	}
	s, call := grabScript, []any(nil)
	switch {
	case c.ballot == nil:
		call = s.callWith(c.key, 1, c.id, millis(c.TTL))
	case c.b.isAnnounced():
		s, call = c.grabVote()
	default:
		return answer{}, false
	}
	a, err := c.send(ctx, "t", s, call)
	if err == nil && c.status(a) != "" {
		return a, true
	}
	c.b.free.remove(c.key) // or a call after this one would ask twice, too
	if err == nil {
		c.answered = false    // whether anybody has the lock it does not say
		c.owed = !a.isZero()  // which says that nothing has changed
		backend.Progress(ctx) // what follows has a time of its own
	}
	return a, false
}

// canDrop reports whether the script of one key may release the hold: nobody has said
// that it is wanted, and no other request about it is under way.
func (s *holdState) canDrop() bool {
	return s.unwanted.Load() && !s.shared.Load() && !s.doubted.Load() && s.used.Load() == 0
}

// drop ends a hold by the script of one key. If it reports false it may have ended the
// hold nevertheless.
func (b *Backend) drop(ctx context.Context, r *release) bool {
	call := dropScript.callWith(r.state.key(), 1, r.state.id)
	a, err := b.run(ctx, min(replyTimeout(r.hold.TTL), r.hold.TTL), dropScript, call)
	r.noteError(err)
	return err == nil && a.isZero()
}
