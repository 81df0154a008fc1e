package redis

import (
	"context"
	"hash/maphash"
	"sync/atomic"

	"github.com/dlock-go/dlock/backend"
)

// A memory knows locks that were free when they were last asked for: they are
// asked for with a script that costs little and can do no more than take them.
// It forgets and confuses some, which costs one request more.
type memory struct {
	seed  maphash.Seed
	marks [1024]atomic.Uint32 // of one lock each
}

func newMemory() *memory { return &memory{seed: maphash.MakeSeed()} }

// at returns where the lock is kept, and its mark, which is not 0.
func (m *memory) at(k key) (*atomic.Uint32, uint32) {
	sum := maphash.String(m.seed, string(k))
	return &m.marks[sum%uint64(len(m.marks))], uint32(sum>>32) | 1
}

func (m *memory) has(k key) bool {
	place, mark := m.at(k)
	return place.Load() == mark
}

func (m *memory) keep(k key) {
	place, mark := m.at(k)
	if place.Load() != mark {
		place.Store(mark)
	}
}

func (m *memory) forget(k key) {
	place, mark := m.at(k)
	place.CompareAndSwap(mark, 0)
}

// grab asks for a lock that was free the last time. It reports false if that
// says nothing, and the lock has to be asked for in full. Where replicas have to
// acknowledge, nothing else counts.
func (c *call) grab(ctx context.Context) (answer, bool) {
	if c.Mode != backend.Exclusive || c.ballot != nil || c.b.replicas > 0 || !c.b.free.has(c.key) {
		return answer{}, false
	}
	a, err := c.put(ctx, "t", grabScript, grabScript.of(c.key, 1, c.id, millis(c.TTL)))
	if err != nil {
		return a, false // who asks again learns whether there is any hope
	}
	if c.status(a) == "" {
		c.b.free.forget(c.key)
		return a, false
	}
	return a, true
}

// drop releases a hold of which nobody has said that it is wanted. It reports
// whether that has happened, or may have.
func (b *Backend) drop(ctx context.Context, s *state) (done, maybe bool) {
	if !s.quick.Load() || s.shares.Load() || s.doubt.Load() || s.used.Load() > 0 {
		return false, false
	}
	a, err := b.run(ctx, min(attempt(s.ttl), s.ttl), dropScript, dropScript.of(s.key, 1, &s.id))
	return err == nil && a.plain && a.number == 0, err != nil
}
