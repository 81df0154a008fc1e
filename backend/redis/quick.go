package redis

import (
	"context"
	"hash/maphash"
	"sync/atomic"
	"time"

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
// says nothing, and the lock has to be asked for in full.
func (c *call) grab(ctx context.Context) (answer, bool) {
	if !c.b.mayGrab(c.key, c.Mode) {
		return answer{}, false
	}
	a, err := c.put(ctx, "t", grabScript, c.grabbing())
	return a, c.grabbed(a, err)
}

// grabbed reports whether grab has the lock. After an error who asks again learns
// whether there is any hope.
func (c *call) grabbed(a answer, err error) bool {
	if err == nil && c.status(a) == "" {
		c.b.free.forget(c.key)
		return false
	}
	return err == nil
}

// grabbing is the command that asks for a lock that was free the last time.
func (c *call) grabbing() []any {
	if v := c.ballot; v != nil {
		return grabScript.of(c.key, 1, c.id, millis(c.TTL), v.Token, backend.TokenLead.Microseconds())
	}
	return grabScript.of(c.key, 1, c.id, millis(c.TTL))
}

// mayDrop reports whether drop may release the hold: nobody has said that it is
// wanted, and no other request about it is under way.
func (s *state) mayDrop() bool {
	return s.is(quick) && !s.is(shares) && !s.is(doubted) && s.used.Load() == 0
}

// drop releases such a hold. If it reports false it may have nevertheless.
func (r *release) drop(ctx context.Context) bool {
	return r.dropped(r.b.run(ctx, r.attempt(), dropScript, r.dropping()))
}

// dropping is the command for that.
func (r *release) dropping() []any { return dropScript.of(r.state.key(), 1, (*idArg)(r.state)) }

// attempt is how long that may take.
func (r *release) attempt() time.Duration { return min(attempt(r.ttl), r.ttl) }

// dropped reports whether the answer to it says that the hold is released.
func (r *release) dropped(a answer, err error) bool {
	r.repeated = err != nil && !untouched(err)
	return err == nil && a.plain && a.number == 0
}
