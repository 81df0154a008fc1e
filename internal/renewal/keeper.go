// Package renewal renews the holds of one client and says when one is over.
//
// It knows of a hold only when it was last proven: when the request was sent
// that the server answered, and how long the server keeps the hold from then.
// From that follows a local deadline, a margin before the server's own. A hold
// that reaches it is over, whether or not anybody answers: that is what makes
// its holder stop before the next one starts.
package renewal

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// ErrNoAnswer is why a hold is lost that nobody took away.
var ErrNoAnswer = errors.New("not renewed in time")

// ErrMaxHold is why a hold is lost that has lasted as long as it may.
var ErrMaxHold = errors.New("held for the longest time allowed")

// An Owner is told what becomes of its hold. The calls come without any lock
// of the keeper held.
type Owner interface {
	// End ends the hold: from then on nobody is told that it is held. The keeper has
	// forgotten it. End does only what must not be late, because many other holds may
	// have to end at the same moment. It reports false if the hold had ended before.
	End(cause error) bool

	// Renewed says that the hold was proven anew. Before is what its lease was until
	// then.
	Renewed(before Lease)

	// RenewalFailed says that a renewal has failed because of cause. Now is what there
	// is of the lease. The keeper tries again.
	RenewalFailed(now Lease, cause error)
}

// A Lease is for how long a hold is believed in without a further proof. It is zero where
// the server keeps the hold for as long as its holder lives.
type Lease struct {
	Granted time.Duration // by the server, at the last proof
	Left    time.Duration // until the deadline; the longest hold allowed does not count
}

// A Loss is a hold that is over, and why.
type Loss struct {
	Owner
	Cause error
}

// An Item is one hold in a Keeper. It is made to be embedded, must not be
// copied, and is guarded by the keeper from Add to Remove. There are many: what
// it can share with others is in its batch.
type Item struct {
	// Hold is what is to be renewed. It is set before Add and stays.
	Hold *backend.Hold

	owner Owner

	added      moment                // or when Restart was called; Hold.Sent may be older, for example of a session
	batch      atomic.Pointer[batch] // the batch it is in, or was in last
	renewalEnd chan struct{}         // closed when the renewal under way has ended; nil: nobody waits for that
	place      int32                 // position in the batch, from 1; 0: none
	isRenewing bool                  // a renewal is under way, or the hold is borrowed
}

// A Keeper keeps any number of holds. It has one timer, and a goroutine only
// while a renewal is under way.
type Keeper struct {
	renewer  backend.Renewer // nil: nothing is renewed, only deadlines are watched
	report   func([]Loss)
	clock    clock
	attempts sync.WaitGroup

	mu          sync.Mutex
	overload    overload
	schedule    schedule
	filling     map[time.Duration]*batch // those that still accept holds, by TTL
	count       int                      // number of items
	renewalRate int64                    // renewals in a billion seconds
	changes     int                      // items added or renewed since updateEarlyEnd

	queue        []*batch      // batches to renew now, earliest deadline first
	shortestTTL  time.Duration // shortest TTL in the queue since it was empty
	calls        []*call       // calls under way, oldest first, and some that were answered
	inFlight     int           // holds that wait for an answer
	lastSend     moment
	answeredSent moment // send time of the latest call that was answered
	lastAnswer   moment // when an answer came
	lastLatency  moment // how long that answer took
	minLatency   moment // how long the fastest answer took
	window       int    // number of renewals that the server answers in time
	failing      bool   // the last call had no answer

	losses   []Loss // not reported yet
	reportAt moment // report then unless others end before
	reportBy moment // report then in any case

	timer      *time.Timer
	armed      moment        // when the timer fires
	comparedAt moment        // when compareClocks ran last
	wallOffset time.Duration // how far the wall clock was ahead of the monotonic one then

	ctx  context.Context
	stop context.CancelFunc
}

// New returns a keeper that renews through r, which may be nil. It calls report
// with the holds for which End has returned true, soon afterwards, when no others
// end just then. Report returns at once.
func New(r backend.Renewer, report func([]Loss)) *Keeper {
	k := &Keeper{renewer: r, report: report, clock: newClock(), armed: never, filling: make(map[time.Duration]*batch), minLatency: never, window: math.MaxInt, shortestTTL: math.MaxInt64}
	k.ctx, k.stop = context.WithCancel(context.Background())
	return k
}

// Add begins to keep it.Hold for owner. A positive maxHold ends it that long after
// it was added. Add reports false, and does nothing, if that is over already:
// its lease ran out before the answer came.
func (k *Keeper) Add(it *Item, maxHold time.Duration, owner Owner) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	h, now := it.Hold, k.clock.now()
	it.owner, it.added = owner, now.at
	b := k.planFor(h, h.TTL, never, now)
	if early := it.batch.Load(); early != nil { // it was shortened before it was added
		b.shorten(&early.plan, now)
	}
	if maxHold > 0 {
		b.end = it.maxEnd(maxHold)
	}
	switch {
	case k.renewer == nil || h.Fixed && b.deadline.running >= b.end:
		b.first = never
	case h.RenewIn > 0:
		b.first = k.clock.at(h.Sent) + moment(h.RenewIn)
	}
	b.due = b.first
	if b.expired(now) != nil || k.ctx.Err() != nil {
		return false
	}
	if k.count == 0 {
		k.compareClocks(now)
	}
	k.addToBatch(it, &b, now)
	k.arm(now)
	return true
}

// planFor returns the plan for a hold that was just proven.
func (k *Keeper) planFor(h *backend.Hold, ttl time.Duration, end moment, now instant) plan {
	b := plan{ttl: ttl, lease: ttl, deadline: k.clock.deadline(h), end: end}
	if h.Granted > 0 {
		b.lease = h.Granted
	}
	b.first = k.clock.at(h.Sent) + moment(b.period())
	b.due, b.until = b.first, b.deadline.until(now)
	if h.Granted > 0 {
		b.span = h.Granted - backend.Margin(h.Granted)
	}
	return b
}

// Remove forgets the hold. When it has returned, no renewal of it is sent any
// more: it waits for one under way until that is answered or ctx is done. The
// owner hears nothing more of it, but for a call that had begun before. Remove
// reports false if ctx was done first.
func (k *Keeper) Remove(ctx context.Context, it *Item) bool {
	k.mu.Lock()
	if it.place > 0 {
		k.removeFromBatch(it)
		k.returnSlot()
	}
	settled := it.renewalDone()
	k.mu.Unlock()
	return settled == nil || waitClosed(ctx, settled)
}

// Borrow has no renewal of the hold sent until Return, for a caller that changes
// it, and waits for one under way. Whoever else borrows the hold or removes it
// waits for Return. Its lease may end meanwhile. Borrow reports false if the hold
// is not kept any more, or ctx was done first.
func (k *Keeper) Borrow(ctx context.Context, it *Item) bool {
	for {
		k.mu.Lock()
		kept, settled := it.place > 0, it.renewalDone()
		if kept && settled == nil {
			it.isRenewing = true
			b := it.batch.Load()
			b.markRenewing(it)
			k.changed(b)
		}
		k.mu.Unlock()
		if !kept || settled == nil {
			return kept
		}
		if !waitClosed(ctx, settled) {
			return false
		}
	}
}

// Return ends what Borrow began.
func (k *Keeper) Return(it *Item) {
	k.mu.Lock()
	defer k.mu.Unlock()
	it.endRenewal()
	if it.place == 0 {
		return
	}
	b := it.batch.Load()
	b.markIdle(it)
	k.schedule.move(b)
	k.arm(k.clock.now())
}

// renewalDone returns a channel that is closed when no renewal is under way. It is nil
// if none is.
func (it *Item) renewalDone() <-chan struct{} {
	if it.isRenewing && it.renewalEnd == nil {
		it.renewalEnd = make(chan struct{})
	}
	return it.renewalEnd
}

// endRenewal notes that no renewal is under way any more.
func (it *Item) endRenewal() {
	it.isRenewing = false
	if it.renewalEnd != nil {
		close(it.renewalEnd)
		it.renewalEnd = nil
	}
}

// waitClosed waits for c to be closed. It reports false if ctx is done first.
func waitClosed(ctx context.Context, c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	case <-ctx.Done():
		return false
	}
}

// Expired reports why the hold is over by the clock, or nil. It is for calls
// that must not say "held" on a machine that has just woken up.
func (k *Keeper) Expired(it *Item) error { return it.batch.Load().expired(k.clock.now()) }

// Restart has the age of the holds that are still kept begin now, at one moment. A positive
// maxHold ends them that long after.
func (k *Keeper) Restart(items []*Item, maxHold time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.clock.now()
	for _, it := range items {
		it.added = now.at
		if maxHold <= 0 || it.place == 0 {
			continue
		}
		n := it.batch.Load().plan
		n.end = it.maxEnd(maxHold)
		k.removeFromBatch(it)
		k.addToBatch(it, &n, now)
	}
	k.arm(now)
}

// maxEnd returns when the item is over if it may be held for maxHold.
func (it *Item) maxEnd(maxHold time.Duration) moment {
	return it.added + min(moment(maxHold), never-it.added)
}

// Age returns how old the hold is: how long ago it was added, or Restart was called.
func (k *Keeper) Age(it *Item) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return time.Duration(k.clock.now().at - it.added)
}

// HasThird reports whether a third of the lease is left, or of the TTL if that is less.
func (k *Keeper) HasThird(it *Item) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	b, now := it.batch.Load(), k.clock.now()
	return b.expired(now) == nil && min(b.limit(), b.deadline.until(now))-now.at >= moment(min(b.lease, b.ttl)/3)
}

// Left returns how long the hold may be believed in if nothing more is heard
// of it, and false if it has no such limit.
func (k *Keeper) Left(it *Item) (time.Duration, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	b := it.batch.Load()
	now := k.clock.now()
	until := min(b.until, b.deadline.until(now)) // the machine may have slept since the clocks were compared
	end := min(b.endBy(until, k.schedule.earlyEnd), b.end)
	return time.Duration(end - now.at), end != never
}

// Close ends the renewals under way and forgets every hold.
func (k *Keeper) Close() {
	k.mu.Lock()
	k.stop()
	if k.timer != nil {
		k.timer.Stop()
	}
	for len(k.schedule.dates) > 0 {
		k.drop(k.schedule.dates[0].batch)
	}
	ended := k.losses
	k.losses = nil
	k.mu.Unlock()
	if len(ended) > 0 {
		k.report(ended)
	}
	k.attempts.Wait()
}
