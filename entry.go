package dlock

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// An entry is one lease on a hold. It is a lock scope of its own: the entries
// made under it exclude one another as on a lock, by its gate. It keeps its place
// in its parent's scope until it is unlocked and its own scope is empty.
type entry struct {
	ending
	hold   *hold
	parent *entry                     // nil for the lease that took the lock
	group  atomic.Pointer[multiLease] // that it is a part of, or nil

	// Guarded by the client's mutex.
	scope   *gate // nil: nobody has entered under it
	leaving bool  // it was unlocked, and has its place for those in its scope

	// Guarded by hold.mu.
	mode         backend.Mode
	older, newer *entry
	gone         bool   // it was closed
	handle       *Lease // nil once the handle is watched, see watchForDrops
	fence        uint64 // the token; never changes
}

var _ leased = (*entry)(nil)

func (e *entry) ends() *ending               { return &e.ending }
func (e *entry) check()                      { e.hold.check() }
func (e *entry) token() uint64               { return e.fence }
func (e *entry) whenWanted() <-chan struct{} { return e.hold.whenWanted() }
func (e *entry) until() time.Time            { return e.hold.until() }
func (e *entry) lockName() string            { return e.hold.lock.name() }
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
	if r := e.ownReason(); r != nil {
		return e.note(r)
	}
	if g := e.group.Load(); g != nil {
		return e.note(g.reason())
	}
	return nil
}

func (e *entry) ownReason() *reason {
	if r := e.over.Load(); r != nil {
		return r // and the hold may be another's
	}
	return e.hold.over.Load()
}

// end ends the lease for whoever unlocks it. It reports false if it was over.
func (e *entry) end() bool {
	first := e.reason() == nil && e.over.CompareAndSwap(nil, unlocked)
	e.settle(false)
	return first
}

// settle tells of the end, which has been, those who have asked to be told.
func (e *entry) settle(othersWait bool) {
	e.reason()
	e.ending.settle(e.lockName(), othersWait)
	if g := e.group.Load(); g != nil {
		g.settle(othersWait)
	}
}

// leaveGroup has the other locks given back that were taken together with this one.
func (e *entry) leaveGroup() {
	if g := e.group.Load(); g != nil {
		g.partEnded()
	}
}

func (e *entry) why() error  { return e.reason().on(e.lockName()) }
func (e *entry) ended() bool { return e.reason() != nil }

func (e *entry) bind(ctx context.Context, l *Lease, end context.CancelCauseFunc) context.Context {
	return context.WithValue(ctx, chainKey{}, &chain{lease: l, entry: e, end: end, outer: chainOf(ctx)})
}

// unlock takes the entry off its hold. The last one off releases the lock.
func (e *entry) unlock(ctx context.Context) error {
	ctx, cancel := e.hold.usable(ctx)
	defer cancel()
	if last, err := e.exit(ctx); !last {
		return err
	}
	return e.hold.release(ctx)
}

// exit takes the entry off its hold, and reports whether it is the last one: then the
// hold is to be released.
func (e *entry) exit(ctx context.Context) (last bool, err error) {
	h := e.hold
	left, seq, over := h.exit(e)
	e.leaveGroup()
	switch {
	case over != nil:
		return false, over
	case left == 0:
		return true, nil
	}
	return false, e.exitFrom(ctx, left, seq)
}

// exitFrom tells the server of an entry that was taken off a hold with others.
func (e *entry) exitFrom(ctx context.Context, left, seq int32) error {
	h := e.hold
	if e.parent == nil && !h.isNested() {
		return nil // other readers go on with the hold
	}
	defer e.client().leaveParent(e)
	err := h.recount(ctx, left, seq)
	if errors.Is(err, ErrLost) && h.overBy(ErrUnlocked) {
		return nil // the last one off has overtaken it
	}
	return err
}

func (h *hold) isNested() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.nested > 0
}

// downgrade makes the hold shared. The keeper lends it meanwhile, so that no
// renewal reads what is being changed, and no release overtakes the change.
func (e *entry) downgrade(ctx context.Context) error {
	h, c := e.hold, e.client()
	if e.modeNow() == backend.Shared {
		return nil
	}
	if c.downgrader == nil {
		return ErrUnsupported
	}
	if err := h.soleWriter(e, false); err != nil {
		return err
	}
	if left, ok := c.keeper.Left(&h.item); ok {
		var cancel context.CancelFunc
		ctx, cancel = backend.Bound(ctx, left)
		defer cancel()
	}
	var err error
	switch {
	case c.keeper.Borrow(ctx, &h.item):
		err = e.downgradeNow(ctx)
		c.keeper.Return(&h.item)
	case ctx.Err() != nil:
		err = backend.WaitEnded(ctx, false)
	default:
		err = ErrLost // which is about to be told
	}
	if errors.Is(err, ErrLost) {
		h.Lost(err)
	}
	e.check()
	if why := e.why(); why != nil {
		return why
	}
	return err
}

// downgradeNow asks the server, unless another call has done so meanwhile.
func (e *entry) downgradeNow(ctx context.Context) error {
	if e.modeNow() == backend.Shared {
		return nil
	}
	if err := e.hold.soleWriter(e, true); err != nil {
		return err
	}
	err := e.client().downgrader.Downgrade(ctx, e.hold.item.Hold)
	if err == nil {
		e.client().opened(e)
	}
	return err
}

// soleWriter reports why the hold cannot be shared yet. If it can, and the server is
// about to be asked, it is weak from then on: the server may have it shared before that
// is known here.
func (h *hold) soleWriter(e *entry, asking bool) error {
	if e.parent != nil {
		return backend.Fail(ErrReentry, errNestedDowngrade)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if e.ended() { // and the hold may be another's
		return e.why()
	}
	for o := h.open; o != nil; o = o.older {
		if o != e && o.mode == backend.Exclusive {
			return backend.Fail(ErrReentry, errOpenEntry)
		}
	}
	h.weak = h.weak || asking
	return nil
}

// opened lets in the readers of this client after a downgrade, unless the hold has
// ended meanwhile: then its place is given up as it was taken.
func (c *Client) opened(e *entry) {
	h := e.hold
	c.mu.Lock()
	defer c.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over.Load() != nil {
		return
	}
	h.item.Hold.Mode, e.mode = backend.Shared, backend.Shared
	h.door.downgrade()
}

func (e *entry) modeNow() backend.Mode {
	e.hold.mu.Lock()
	defer e.hold.mu.Unlock()
	return e.mode
}

// dropped is called when the last reference to a lease's handle is gone.
func (e *entry) dropped() {
	if !e.ended() {
		e.client().complain("lease dropped without Unlock, the lock stays held", e.lockName(), nil)
	}
}

// A chain lists the leases that a context was made from, innermost first.
type chain struct {
	lease *Lease // keeps the handle from being taken for dropped
	entry *entry
	end   context.CancelCauseFunc // of the lease's context
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
