// Package keepalive renews the holds of one client and says when one is over.
//
// It knows of a hold only when it was last proven: when the request was sent
// that the server answered, and how long the server keeps the hold from then.
// From that follows a local deadline, a margin before the server's own. A hold
// that reaches it is over, whether or not anybody answers: that is what makes
// its holder stop before the next one starts.
package keepalive

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
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
	// lease before. It returns whether to tell of the next time too; if not,
	// Item.Tell has it told again. To tell costs as much as to renew.
	Renewed(left time.Duration) (again bool)
}

// An Item is one hold in a Keeper. It is made to be embedded, must not be
// copied, and is guarded by the keeper from Add to Remove. There are many: what
// it can share with others is in its lot.
type Item struct {
	// Hold is what is to be renewed. It is set before Add and stays.
	Hold *backend.Hold

	owner Owner

	added    moment              // Sent may be older: that of a session is
	lot      atomic.Pointer[lot] // the last one that it was in
	settled  chan struct{}       // closed when no renewal is under way any more; nil: nobody asks
	place    int32               // in the lot, from 1; 0: not there
	inFlight bool                // a renewal is under way, or the hold is borrowed
	tell     atomic.Bool         // its owner wants to know of the next renewal
}

// Tell has the owner told of the next renewal. It may be called at any time.
func (it *Item) Tell() { it.tell.Store(true) }

// A Keeper keeps any number of holds. It has one timer, and a goroutine only
// while a renewal is under way.
type Keeper struct {
	renewer backend.Renewer // nil: deadlines are watched, nothing is renewed
	clock   clock

	mu     sync.Mutex
	lots   schedule
	open   openLots
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

// Add begins to keep it.Hold for owner. A positive maxHold ends it that long after
// it was added. Add reports false, and does nothing, if that is over already:
// its lease ran out before the answer came.
func (k *Keeper) Add(it *Item, maxHold time.Duration, owner Owner) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	h, now := it.Hold, time.Now()
	it.owner, it.added = owner, k.clock.at(now)
	it.Tell()
	l := k.lotFor(h, h.TTL, never)
	if maxHold > 0 {
		l.end = it.added + min(moment(maxHold), never-it.added)
	}
	switch {
	case k.renewer == nil || h.Fixed && l.deadline.running >= l.end:
		l.first = never
	case h.RenewIn > 0:
		l.first = k.clock.at(h.Sent) + moment(h.RenewIn)
	}
	return k.keep(it, l, now)
}

// lotFor is the lot of a hold that was just proven.
func (k *Keeper) lotFor(h *backend.Hold, ttl time.Duration, end moment) lot {
	return lot{ttl: ttl, deadline: k.clock.deadline(h), end: end, first: k.clock.at(h.Sent) + moment(period(h, ttl))}
}

// keep puts an item into a lot such as l, unless that is over.
func (k *Keeper) keep(it *Item, l lot, now time.Time) bool {
	if l.over(k.clock.at(now), now) != nil || k.ctx.Err() != nil {
		return false
	}
	k.put(it, l)
	k.arm(now)
	return true
}

// Remove forgets the hold. When it has returned, no renewal of it is sent any
// more: it waits for one under way until that is answered or ctx is done. The
// owner hears nothing more of it, but for a call that had begun before. Remove
// reports false if ctx was done first.
func (k *Keeper) Remove(ctx context.Context, it *Item) bool {
	k.mu.Lock()
	if it.place > 0 {
		k.take(it)
	}
	settled := it.settling()
	k.mu.Unlock()
	return settled == nil || happens(ctx, settled)
}

// Borrow has no renewal of the hold sent until Return, for a caller that changes
// it, and waits for one under way. Whoever else borrows the hold or removes it
// waits for Return. Its lease may end meanwhile. Borrow reports false if the hold
// is not kept any more, or ctx was done first.
func (k *Keeper) Borrow(ctx context.Context, it *Item) bool {
	for {
		k.mu.Lock()
		kept, settled := it.place > 0, it.settling()
		if kept && settled == nil {
			it.inFlight = true
		}
		k.mu.Unlock()
		if !kept || settled == nil {
			return kept
		}
		if !happens(ctx, settled) {
			return false
		}
	}
}

// Return ends what Borrow began.
func (k *Keeper) Return(it *Item) {
	k.mu.Lock()
	defer k.mu.Unlock()
	it.settle()
	if it.place == 0 {
		return
	}
	now := time.Now()
	if l := it.lot.Load(); l.first != never && l.due == never { // its time came meanwhile
		l.later(k.clock.at(now))
		k.lots.move(l)
	}
	k.arm(now)
}

// settling returns a channel that is closed when no renewal is under way, nil if
// none is.
func (it *Item) settling() <-chan struct{} {
	if it.inFlight && it.settled == nil {
		it.settled = make(chan struct{})
	}
	return it.settled
}

func (it *Item) settle() {
	it.inFlight = false
	if it.settled != nil {
		close(it.settled)
		it.settled = nil
	}
}

// happens waits for c to be closed, and reports false if ctx was done first.
func happens(ctx context.Context, c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	case <-ctx.Done():
		return false
	}
}

// Expired reports why the hold is over by the clock, or nil. It is for calls
// that must not say "held" on a machine that has just woken up.
func (k *Keeper) Expired(it *Item) error {
	now := time.Now()
	return it.lot.Load().over(k.clock.at(now), now)
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
	l, at := it.lot.Load(), k.clock.at(now)
	return l.over(at, now) == nil && l.limit()-at >= moment(least)
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
	limit := it.lot.Load().limit()
	return time.Duration(limit - k.clock.at(time.Now())), limit != never
}

// Close ends the renewals under way and forgets every hold.
func (k *Keeper) Close() {
	k.mu.Lock()
	k.stop()
	if k.timer != nil {
		k.timer.Stop()
	}
	for len(k.lots) > 0 {
		k.drop(k.lots[0].lot)
	}
	k.mu.Unlock()
	k.passes.Wait()
}

// period is the time from one renewal of h to the next.
func period(h *backend.Hold, ttl time.Duration) time.Duration {
	if h.Granted > 0 {
		return h.Granted / 3
	}
	return ttl / 3
}
