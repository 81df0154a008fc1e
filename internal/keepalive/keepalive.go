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
	"container/heap"
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
// copied, and is guarded by the keeper from Add to Remove.
type Item struct {
	hold  *backend.Hold
	owner Owner

	deadline deadline  // zero: no lease to run out
	end      time.Time // zero: no longest time
	due      time.Time // next renewal; zero: none
	retry    backend.Backoff

	at       time.Time     // when it is looked at next: its key in the heap
	index    int           // in the heap, from 1; 0: not there
	inFlight bool          // a renewal is under way
	settled  chan struct{} // closed when it is not any more; nil: nobody asks
}

// A Keeper keeps any number of holds. It has one timer, and a goroutine only
// while a renewal is under way.
type Keeper struct {
	renewer backend.Renewer // nil: deadlines are watched, nothing is renewed

	mu     sync.Mutex
	items  schedule
	timer  *time.Timer
	armed  time.Time // when timer fires; zero: it does not
	ctx    context.Context
	stop   context.CancelFunc
	passes sync.WaitGroup
}

// New returns a keeper that renews through r, which may be nil.
func New(r backend.Renewer) *Keeper {
	k := &Keeper{renewer: r}
	k.ctx, k.stop = context.WithCancel(context.Background())
	return k
}

// Add begins to keep h for owner. A positive maxHold ends it that long after
// it was granted. Add reports false, and does nothing, if h is over already:
// its lease ran out before the answer came.
func (k *Keeper) Add(it *Item, h *backend.Hold, maxHold time.Duration, owner Owner) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	it.hold, it.owner = h, owner
	it.proven()
	if maxHold > 0 {
		it.end = h.Sent.Add(maxHold)
	}
	it.due = time.Time{}
	if k.renewer != nil && !h.Fixed {
		it.due = h.Sent.Add(cmp.Or(h.RenewIn, period(h)))
	}
	it.retry = backend.Backoff{Min: max(h.TTL/50, time.Millisecond), Max: max(h.TTL/10, 2*time.Millisecond)}
	if it.over(now) != nil || k.ctx.Err() != nil {
		return false
	}
	heap.Push(&k.items, it)
	k.arm(now)
	return true
}

// Remove forgets the hold. When it has returned, no renewal of it is sent any
// more: it waits for one under way until that is answered or ctx is done. The
// owner hears nothing more of it, but for a call that had begun before.
func (k *Keeper) Remove(ctx context.Context, it *Item) {
	k.mu.Lock()
	if it.index > 0 {
		heap.Remove(&k.items, it.index-1)
	}
	var settled chan struct{}
	if it.inFlight {
		if it.settled == nil {
			it.settled = make(chan struct{})
		}
		settled = it.settled
	}
	k.mu.Unlock()
	if settled != nil {
		select {
		case <-settled:
		case <-ctx.Done():
		}
	}
}

// Expired reports why the hold is over by the clock, or nil. It is for calls
// that must not say "held" on a machine that has just woken up.
func (k *Keeper) Expired(it *Item) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return it.over(time.Now())
}

// Left returns how long the hold may be believed in if nothing more is heard
// of it, and false if it has no such limit.
func (k *Keeper) Left(it *Item) (time.Duration, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	at, ok := it.limit()
	return time.Until(at), ok
}

// Close ends the renewals under way and forgets every hold.
func (k *Keeper) Close() {
	k.mu.Lock()
	k.stop()
	if k.timer != nil {
		k.timer.Stop()
	}
	for _, it := range k.items {
		it.index = 0
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

// proven sets the deadline by what the hold says of itself.
func (it *Item) proven() {
	it.deadline = deadline{}
	if h := it.hold; h.Granted > 0 {
		it.deadline = deadline{from: h.Sent, after: h.Granted - backend.Margin(h.Granted)}
	}
}

// over says why the hold is over at now, or nil.
func (it *Item) over(now time.Time) error {
	switch {
	case it.deadline.passed(now):
		return errNoAnswer
	case !it.end.IsZero() && !now.Before(it.end):
		return errMaxHold
	}
	return nil
}

// limit is the earliest moment at which the hold is over unless it is renewed.
func (it *Item) limit() (time.Time, bool) {
	at := it.deadline.at()
	if at.IsZero() || !it.end.IsZero() && it.end.Before(at) {
		at = it.end
	}
	return at, !at.IsZero()
}

// next is when the keeper must look at the item again.
func (it *Item) next() time.Time {
	at, ok := it.limit()
	if !it.inFlight && !it.due.IsZero() && (!ok || it.due.Before(at)) {
		return it.due
	}
	if !ok {
		return farAway
	}
	return at
}
