package redis

import (
	"context"
	"hash/maphash"
	"sync/atomic"

	"github.com/dlock-go/dlock/backend"
)

// A freeCache knows locks that were free when they were last asked for: they are
// asked for with a script of one key, which can do no more than take them.
// It forgets and confuses some, which costs one request more.
type freeCache struct {
	seed  maphash.Seed
	marks [1024]atomic.Uint32 // of one lock each
}

func newFreeCache() *freeCache { return &freeCache{seed: maphash.MakeSeed()} }

// slot returns where the lock is kept, and its mark, which is not 0.
func (f *freeCache) slot(k key) (*atomic.Uint32, uint32) {
	sum := maphash.String(f.seed, string(k))
	return &f.marks[sum%uint64(len(f.marks))], uint32(sum>>32) | 1
}

func (f *freeCache) has(k key) bool {
	slot, mark := f.slot(k)
	return slot.Load() == mark
}

func (f *freeCache) add(k key) {
	slot, mark := f.slot(k)
	slot.Store(mark)
}

func (f *freeCache) remove(k key) {
	slot, mark := f.slot(k)
	slot.CompareAndSwap(mark, 0)
}

// grab asks for a lock that was free the last time. It reports false if the answer
// says nothing, and the lock has to be asked for in full. Where replicas have to
// acknowledge, nothing else counts. After an error who asks again learns whether there
// is any hope.
func (c *acquisition) grab(ctx context.Context) (answer, bool) {
	if c.ballot != nil || c.Mode != backend.Exclusive || c.b.replicas > 0 || !c.b.free.has(c.key) {
		return answer{}, false
	}
	a, err := c.send(ctx, "t", grabScript, grabScript.callWith(c.key, 1, c.id, millis(c.TTL)))
	if err == nil && c.status(a) == "" {
		c.b.free.remove(c.key)
		c.owed = !a.isZero() // which says that nothing has changed
		return a, false
	}
	return a, err == nil
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
