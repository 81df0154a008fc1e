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

// mayGrab reports whether the lock was free the last time. Where replicas have to
// acknowledge, nothing else counts.
func (b *Backend) mayGrab(k key, m backend.Mode) bool {
	return m == backend.Exclusive && b.replicas == 0 && b.free.has(k)
}

// grab asks for a lock that was free the last time. It reports false if that
// says nothing, and the lock has to be asked for in full. After an error who asks
// again learns whether there is any hope.
func (c *call) grab(ctx context.Context) (answer, bool) {
	if c.ballot != nil || !c.b.mayGrab(c.key, c.Mode) {
		return answer{}, false
	}
	a, err := c.put(ctx, "t", grabScript, grabScript.of(c.key, 1, c.id, millis(c.TTL)))
	if err == nil && c.status(a) == "" {
		c.b.free.forget(c.key)
		c.owed = !a.isZero() // which says that nothing has changed
		return a, false
	}
	return a, err == nil
}

// mayDrop reports whether drop may release the hold: nobody has said that it is
// wanted, and no other request about it is under way.
func (s *state) mayDrop() bool {
	return s.is(quick) && !s.is(shares) && !s.is(doubted) && s.used.Load() == 0
}

// drop releases such a hold. If it reports false it may have nevertheless.
func (r *release) drop(ctx context.Context) bool {
	call := dropScript.of(r.state.key(), 1, (*idArg)(r.state))
	a, err := r.b.run(ctx, min(attempt(r.ttl), r.ttl), dropScript, call)
	r.repeated = err != nil && !untouched(err)
	return err == nil && a.isZero()
}
