package dlock

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// An entry is one lease on a hold. It is a lock scope of its own: the entries
// made under it exclude one another as on a lock, in its own queue. It keeps its place
// in its parent's scope until it is unlocked and its own scope is empty.
type entry struct {
	lifecycle
	hold   *hold
	parent *entry                     // nil for the lease that took the lock
	group  atomic.Pointer[multiLease] // the multi-lock that it is part of, or nil

	// Guarded by the client's mutex.
	scope     *queue // queue of the entries under this one; nil: there was none
	isLeaving bool   // unlocked, but entries under it keep its place

	// Guarded by hold.mu.
	mode         backend.Mode
	older, newer *entry
	isClosed     bool   // removed from the hold
	handle       *Lease // nil once watchForDrops watches it
	fencingToken uint64 // never changes
}

var _ leased = (*entry)(nil)

func (e *entry) life() *lifecycle            { return &e.lifecycle }
func (e *entry) check()                      { e.hold.check() }
func (e *entry) token() uint64               { return e.fencingToken }
func (e *entry) wantedChan() <-chan struct{} { return e.hold.wantedChan() }
func (e *entry) until() time.Time            { return e.hold.until() }
func (e *entry) lockName() string            { return e.hold.lock.name() }
func (e *entry) isShared() bool              { return e.modeNow() == backend.Shared }
func (e *entry) label() string               { return e.hold.lock.label }
func (e *entry) client() *Client             { return e.hold.lock.client }

func (e *entry) tokenOf(name string) uint64 {
	if name != e.hold.lock.name() {
		return 0
	}
	return e.token()
}

// reason is why the lease is over, nil while it lasts: it ends with its hold, and
// with the other locks that were taken together with it.
func (e *entry) reason() *reason {
	if r := e.reasonHere(); r != nil {
		return e.setReason(r)
	}
	if g := e.group.Load(); g != nil {
		return e.setReason(g.reason())
	}
	return nil
}

func (e *entry) reasonHere() *reason {
	if r := e.over.Load(); r != nil {
		return r // the hold may have another owner already
	}
	return e.hold.over.Load()
}

// end ends the lease for whoever unlocks it. It reports false if it was over.
func (e *entry) end() bool {
	first := e.reason() == nil && e.over.CompareAndSwap(nil, unlocked)
	e.notify(false)
	return first
}

// notify closes Done and ends the contexts of a lease that has ended, and those of its
// multi-lock.
func (e *entry) notify(othersWait bool) {
	e.reason()
	e.lifecycle.notify(e.lockName(), othersWait)
	if g := e.group.Load(); g != nil {
		g.notify(othersWait)
	}
}

// endGroup releases the other locks of the multi-lock that this lease is part of.
func (e *entry) endGroup() {
	if g := e.group.Load(); g != nil {
		g.memberLost()
	}
}

func (e *entry) why() error  { return e.reason().on(e.lockName()) }
func (e *entry) ended() bool { return e.reason() != nil }

func (e *entry) bind(ctx context.Context, l *Lease, end context.CancelCauseFunc) context.Context {
	return context.WithValue(ctx, chainKey{}, &chain{lease: l, entry: e, end: end, outer: chainOf(ctx)})
}

// unlock takes the entry off its hold. The last one off releases the lock.
func (e *entry) unlock(ctx context.Context) error {
	ctx, cancel := e.hold.releaseContext(ctx)
	defer cancel()
	if last, err := e.leaveHold(ctx); !last {
		return err
	}
	return e.hold.releaseAfterMinHold(ctx)
}

// skipMinHold has the hold be released without waiting for its minimum, if e has taken it.
func (e *entry) skipMinHold() {
	if e.parent == nil {
		e.hold.skipsMinHold.Store(true)
	}
}

// leaveHold removes the lease from its hold. It reports whether it was the last one,
// so that the caller must release the hold.
func (e *entry) leaveHold(ctx context.Context) (last bool, err error) {
	h := e.hold
	left, seq, over := h.removeLease(e)
	e.endGroup()
	switch {
	case over != nil:
		return false, over
	case left == 0:
		return true, nil
	}
	return false, e.tellServer(ctx, left, seq)
}

// tellServer tells the server that one of several leases on a hold has ended.
func (e *entry) tellServer(ctx context.Context, left, seq int32) error {
	h := e.hold
	if e.parent == nil && !h.hasNested() {
		return nil // other readers share the hold
	}
	defer e.client().leaveParent(e)
	err := h.reportEntries(ctx, left, seq)
	if errors.Is(err, ErrLost) && h.overBy(ErrUnlocked) {
		return nil // the release of the last lease came first
	}
	return err
}

func (h *hold) hasNested() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.nested > 0
}

func (e *entry) modeNow() backend.Mode {
	e.hold.mu.Lock()
	defer e.hold.mu.Unlock()
	return e.mode
}

// dropped is called when the last reference to a lease's handle is gone.
func (e *entry) dropped() {
	if !e.ended() {
		e.logDropped()
	}
}

// A chain lists the leases that a context was made from, innermost first.
type chain struct {
	lease *Lease // keeps the handle alive, so that it does not count as dropped
	entry *entry
	end   context.CancelCauseFunc // ends the lease's context
	outer *chain
}

type chainKey struct{}

func chainOf(ctx context.Context) *chain {
	ch, _ := ctx.Value(chainKey{}).(*chain)
	return ch
}

// find returns the innermost live lease of ch on the lock, nil if there is
// none. The context of one that has ended is done when find returns.
func (ch *chain) find(c *Client, fullName string) *chain {
	for ; ch != nil; ch = ch.outer {
		e := ch.entry
		if l := e.hold.lock; l.client != c || l.fullName != fullName {
			continue
		}
		e.check()
		why := e.why()
		if why == nil {
			return ch
		}
		ch.end(why)
	}
	return nil
}
