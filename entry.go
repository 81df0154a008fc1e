package dlock

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
	"weak"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/queue"
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
	scope     *turnQueue // queue of the entries under this one; nil: there was none
	isLeaving bool       // unlocked, but entries under it keep its place

	// Guarded by hold.mu.
	mode         backend.Mode
	place        int32  // in hold.leases, from 1; 0: closed
	handle       *Lease // nil once watchForDrops watches it
	fencingToken uint64 // never changes
}

var _ leased = (*entry)(nil)

func (e *entry) check()                      { e.hold.check() }
func (e *entry) token() uint64               { return e.fencingToken }
func (e *entry) wantedChan() <-chan struct{} { return e.hold.wantedChan(e.fencingToken) }
func (e *entry) until() time.Time            { return e.hold.until() }
func (e *entry) isShared() bool              { return e.modeNow() == backend.Shared }

// reason is why the lease is over, nil while it lasts: it ends with its hold, and
// with the other locks that were taken together with it.
func (e *entry) reason() *reason {
	if r := e.reasonHere(); r != nil {
		return e.setReason(r)
	}
	if g := e.group.Load(); g != nil {
		return e.setReason(g.over.Load()) // set before the hold of another lock ends
	}
	return nil
}

// reasonHere is reason, without the other locks of a multi-lock.
func (e *entry) reasonHere() *reason {
	if r := e.over.Load(); r != nil {
		return r // the hold may have another owner already
	}
	return e.hold.over.Load()
}

// notify closes Done and ends the contexts of a lease that has ended, and those of its
// multi-lock.
func (e *entry) notify(othersWait bool) {
	e.reason()
	e.lifecycle.notify(othersWait)
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

func (e *entry) why() error  { return e.reason().on(e.lock.name) }
func (e *entry) ended() bool { return e.reason() != nil }

func (e *entry) modeNow() backend.Mode {
	e.hold.mu.Lock()
	defer e.hold.mu.Unlock()
	return e.mode
}

// dropped is called when the last reference to a lease's handle is gone. While the lease
// lasts its hold refers to the entry.
func dropped(of weak.Pointer[entry]) {
	if e := of.Value(); e != nil && !e.ended() {
		e.logDropped()
	}
}

// A chain lists the leases that a context was made from, innermost first.
type chain struct {
	lease       *Lease                  // keeps the handle alive, so that it does not count as dropped
	end         context.CancelCauseFunc // ends the lease's context
	own, parent context.Context         // that context, and the one that it was made from
}

type chainKey struct{}

func chainOf(ctx context.Context) *chain {
	ch, _ := ctx.Value(chainKey{}).(*chain)
	return ch
}

func (ch *chain) outer() *chain { return chainOf(ch.parent) }

// endedWith returns the innermost lease of c with which ctx has ended, nil if there is none.
func (ch *chain) endedWith(ctx context.Context, c *Client) *chain {
	for ; ch != nil; ch = ch.outer() {
		if ch.lease.of.life().lock.client == c && errors.Is(context.Cause(ctx), context.Cause(ch.own)) {
			return ch
		}
	}
	return nil
}

// find returns the innermost live lease of ch on the lock, nil if there is
// none. The context of one that has ended is done when find returns.
func (ch *chain) find(c *Client, fullName string) *Lease {
	for ; ch != nil; ch = ch.outer() {
		l := ch.lease.on(c, fullName)
		if l == nil {
			continue
		}
		e := l.of.(*entry)
		e.check()
		why := e.why()
		if why == nil {
			return l
		}
		ch.end(why)
	}
	return nil
}

// on returns the lease on the lock of that name: l, or its part if l is that of a
// multi-lock. It returns nil if l is on other locks.
func (l *Lease) on(c *Client, fullName string) *Lease {
	switch lock := l.of.life().lock; {
	case lock.client != c:
		return nil
	case lock.parts != nil:
		return l.of.(*multiHandle).part(fullName)
	case lock.fullName != fullName:
		return nil
	}
	return l
}

// reenter makes an entry under outer, which is a lease on the same lock.
func (l *lock) reenter(ctx context.Context, outer *entry, r request) (*Lease, error) {
	if l.noReentry {
		return nil, ErrReentry
	}
	if r.mode == backend.Exclusive && outer.modeNow() == backend.Shared {
		return nil, ErrUpgrade
	}
	if err := l.enterScope(ctx, outer, r); err != nil {
		return nil, err
	}
	h := outer.hold
	e := new(entry)
	h.mu.Lock()
	if err := h.entryError(outer, r.mode); err != nil {
		h.mu.Unlock()
		l.client.leaveScope(outer, r.mode)
		return nil, err
	}
	lease := h.addLease(e, outer, r.mode)
	entries, seq := len(h.leases), h.seq
	h.mu.Unlock()

	asking := limitFirstAnswer(ctx, h.item.Hold.TTL)
	defer asking.stop()
	if err := h.reportEntries(asking, entries, seq); err != nil {
		if isLoss(err) && h.overBy(ErrClosed) {
			err = ErrClosed // Close has released it first
		}
		endUnlocked(e)
		l.client.undo(ctx, r, newError(r.op, l.name, err), func(ctx context.Context) { _ = e.unlock(ctx) })
		return nil, err
	}
	if why := e.why(); why != nil { // lost meanwhile
		return nil, why
	}
	return lease, nil
}

// entryError says why there can be no entry under outer, or returns nil. Outer may
// have ended, or become shared, since the caller looked. The caller holds h.mu.
func (h *hold) entryError(outer *entry, mode backend.Mode) error {
	switch {
	case h.over.Load() != nil:
		return h.over.Load().kind
	case outer.ended():
		return outer.why()
	case mode == backend.Exclusive && (h.isDowngrading || outer.mode == backend.Shared):
		return ErrUpgrade
	}
	return nil
}

// enterScope waits for a place among the entries made under outer.
func (l *lock) enterScope(ctx context.Context, outer *entry, r request) error {
	c := l.client
	c.mu.Lock()
	if outer.scope == nil {
		outer.scope = new(turnQueue)
	}
	if outer.scope.TryEnter(r.mode) {
		c.mu.Unlock()
		return nil
	}
	if !r.wait {
		c.mu.Unlock()
		return ErrHeld
	}
	in := false
	defer func() {
		if !in { // it may have had a place for a moment, and outer have waited for that
			c.mu.Lock()
			defer c.mu.Unlock()
			outer.leaveIfDone()
		}
	}()
	w := queue.NewWaiter(turn{}, r.mode, false, true)
	err := l.awaitTurn(ctx, r, outer.scope, w, outer.doneChan())
	in = err == nil
	if err == queue.ErrAborted {
		return outer.why()
	}
	return err
}

// leaveScope gives up a place under outer: the entry for it has failed.
func (c *Client) leaveScope(outer *entry, mode backend.Mode) {
	c.mu.Lock()
	defer c.mu.Unlock()
	outer.scope.Leave(mode)
	outer.leaveIfDone()
}

// leaveParent ends e's place in its parent's scope, at once or when its own scope
// is empty.
func (c *Client) leaveParent(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.isLeaving = e.parent != nil
	e.leaveIfDone()
}

// leaveIfDone ends the place of e in its parent's scope if e is unlocked and its own
// scope is empty, and then does the same for its parents. The caller holds the client's
// mutex.
func (e *entry) leaveIfDone() {
	for ; e.isLeaving && (e.scope == nil || e.scope.IsEmpty()); e = e.parent {
		e.isLeaving = false
		e.parent.scope.Leave(e.modeNow())
	}
}

// reportEntries tells the server how many leases h has, where the server counts them.
// The answer also proves the hold: an entry into a lost lock fails.
func (h *hold) reportEntries(ctx context.Context, entries int, seq int64) error {
	c := h.lock.client
	if c.reenterer == nil {
		return nil
	}
	err := c.reenterer.Reenter(ctx, h.item.Hold, entries, seq)
	if isLoss(err) {
		h.Lost(err)
	}
	return err
}
