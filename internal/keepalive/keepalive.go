// Package keepalive renews the holds of one client and says when one is over.
//
// It knows of a hold only when it was last proven: when the request was sent
// that the server answered, and how long the server keeps the hold from then.
// From that follows a local deadline, a margin before the server's own. A hold
// that reaches it is over, whether or not anybody answers: that is what makes
// its holder stop before the next one starts.
package keepalive

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// errNoAnswer is why a hold is lost that nobody took away.
var errNoAnswer = errors.New("not renewed in time")

// errMaxHold is why a hold is lost that has lasted as long as it may.
var errMaxHold = errors.New("held for the longest time allowed")

// An Owner is told what becomes of its hold. The calls come without any lock
// of the keeper held.
type Owner interface {
	// Lost says that the hold is over. The keeper has forgotten it.
	Lost(cause error)

	// Renewed says that the hold was proven anew, when left remained of the
	// lease before.
	Renewed(left time.Duration)
}

// An Item is one hold in a Keeper. It is made to be embedded, must not be
// copied, and is guarded by the keeper from Add to Remove. There are many: its
// moments are counted from the keeper's start, to be small.
type Item struct {
	hold  *backend.Hold
	owner Owner

	added    moment // Sent may be older: that of a session is
	deadline deadline
	end      moment // after the longest time it may be held; never changes
	due      moment // next renewal
	retry    *backend.Backoff

	settled  chan struct{} // closed when no renewal is under way any more; nil: nobody asks
	index    int32         // in the heap, from 1; 0: not there
	inFlight bool          // a renewal is under way
}

// A Keeper keeps any number of holds. It has one timer, and a goroutine only
// while a renewal is under way.
type Keeper struct {
	renewer backend.Renewer // nil: deadlines are watched, nothing is renewed
	clock   clock

	mu     sync.Mutex
	items  schedule
	timer  *time.Timer
	armed  moment // when timer fires
	ctx    context.Context
	stop   context.CancelFunc
	passes sync.WaitGroup
}

// New returns a keeper that renews through r, which may be nil.
func New(r backend.Renewer) *Keeper {
	k := &Keeper{renewer: r, clock: clock{time.Now()}, armed: never}
	k.ctx, k.stop = context.WithCancel(context.Background())
	return k
}

// Add begins to keep h for owner. A positive maxHold ends it that long after
// it was added. Add reports false, and does nothing, if h is over already:
// its lease ran out before the answer came.
func (k *Keeper) Add(it *Item, h *backend.Hold, maxHold time.Duration, owner Owner) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	sent := k.clock.at(h.Sent)
	it.hold, it.owner, it.retry, it.added = h, owner, nil, k.clock.at(now)
	it.deadline.set(k.clock, h)
	it.end, it.due = never, never
	if maxHold > 0 {
		it.end = it.added + moment(maxHold)
	}
	if k.renewer != nil && (!h.Fixed || it.deadline.at() < it.end) {
		it.due = sent + moment(cmp.Or(h.RenewIn, period(h)))
	}
	return k.push(it, now)
}

// Resume goes on keeping a hold that was added and removed. Like Add it
// reports false if the hold is over.
func (k *Keeper) Resume(it *Item) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.push(it, time.Now())
}

func (k *Keeper) push(it *Item, now time.Time) bool {
	if k.over(it, now) != nil || k.ctx.Err() != nil {
		return false
	}
	k.items.add(it)
	k.arm(now)
	return true
}

// Remove forgets the hold. When it has returned, no renewal of it is sent any
// more: it waits for one under way until that is answered or ctx is done. The
// owner hears nothing more of it, but for a call that had begun before. Remove
// reports false if ctx was done first.
func (k *Keeper) Remove(ctx context.Context, it *Item) bool {
	k.mu.Lock()
	if it.index > 0 {
		k.items.remove(it)
	}
	var settled chan struct{}
	if it.inFlight {
		if it.settled == nil {
			it.settled = make(chan struct{})
		}
		settled = it.settled
	}
	k.mu.Unlock()
	if settled == nil {
		return true
	}
	select {
	case <-settled:
		return true
	case <-ctx.Done():
		return false
	}
}

// Expired reports why the hold is over by the clock, or nil. It is for calls
// that must not say "held" on a machine that has just woken up.
func (k *Keeper) Expired(it *Item) error {
	return k.over(it, time.Now())
}

// Now returns how long there has been this keeper.
func (k *Keeper) Now() time.Duration { return time.Since(k.clock.start) }

// Age returns how long ago the hold was added.
func (k *Keeper) Age(it *Item) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.Now() - time.Duration(it.added)
}

// Lasts reports whether at least that much is left of the lease.
func (k *Keeper) Lasts(it *Item, least time.Duration) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lasts(it, time.Now(), least)
}

func (k *Keeper) lasts(it *Item, now time.Time, least time.Duration) bool {
	return k.over(it, now) == nil && it.limit()-k.clock.at(now) >= moment(least)
}

// Restart has the age of the hold count from now, for another owner, and
// returns what it was. It reports false, and does nothing, if less than least
// is left of the lease.
func (k *Keeper) Restart(it *Item, least time.Duration) (age time.Duration, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	if !k.lasts(it, now, least) {
		return 0, false
	}
	at := k.clock.at(now)
	age, it.added = time.Duration(at-it.added), at
	return age, true
}

// Left returns how long the hold may be believed in if nothing more is heard
// of it, and false if it has no such limit.
func (k *Keeper) Left(it *Item) (time.Duration, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	limit := it.limit()
	return time.Duration(limit - k.clock.at(time.Now())), limit != never
}

// Close ends the renewals under way and forgets every hold.
func (k *Keeper) Close() {
	k.mu.Lock()
	k.stop()
	if k.timer != nil {
		k.timer.Stop()
	}
	for _, d := range k.items {
		d.item.index = 0
	}
	k.items = nil
	k.mu.Unlock()
	k.passes.Wait()
}

// period is the time from one renewal of h to the next.
func period(h *backend.Hold) time.Duration {
	if h.Granted > 0 {
		return h.Granted / 3
	}
	return h.TTL / 3
}

// over says why the hold is over at now, or nil. It needs no mutex.
func (k *Keeper) over(it *Item, now time.Time) error {
	at := k.clock.at(now)
	switch {
	case it.deadline.passed(at, now):
		return errNoAnswer
	case at >= it.end:
		return errMaxHold
	}
	return nil
}

// limit is when the hold is over unless it is renewed.
func (it *Item) limit() moment { return min(it.deadline.at(), it.end) }

// next is when the keeper must look at the item again.
func (it *Item) next() moment {
	if it.inFlight {
		return it.limit()
	}
	return min(it.due, it.limit())
}
