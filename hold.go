package dlock

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/renewal"
)

// A hold is a lock that this client has on the server, with all leases that
// share it: the one that took it and those that entered it again.
//
// Locks are taken in the order client, hold, lifecycle.
type hold struct {
	lock  *lock
	state *nameState
	item  renewal.Item // contains the backend's hold

	// Guarded by the client's mutex.
	removed    signal          // from state.holds
	requestCtx *requestContext // of the request for this hold; nil once it is answered
	call       *call           // that the request is for; nil: no hook is told, or it is answered
	isWaiting  bool            // the server has said that the lock is held

	over         atomic.Pointer[reason] // nil while the hold lasts; set with mu held
	skipsMinHold atomic.Bool            // release it without waiting for the minimum hold

	mu            sync.Mutex
	leases        []*entry // the open ones, which are not yet unlocked, in any order
	nested        int      // number of those that are re-entries
	seq           int64    // sequence number of the last change of leases; 0 until there is one
	isDowngrading bool     // the server was asked to downgrade: nobody may write under this hold
	wanted        signal   // somebody waits for the lock
	isKept        bool     // by this process for its minimum hold, which has begun or is over
	minHoldEnd    signal
	handOverLimit

	first entry // the lease that took the lock
}

var (
	_ renewal.Owner    = (*hold)(nil)
	_ backend.Observer = (*hold)(nil)
)

// start makes h live with its first lease, for maxHold at most unless that is 0. It fails
// if the server's answer came too late, or if meanwhile the lock has been lost or the
// client closed.
func (h *hold) start(maxHold time.Duration) (*Lease, error) {
	c := h.lock.client
	if h.item.Hold.TTL < practicalTTL {
		c.short.Do(func() { c.janitor.Go(func(context.Context) { c.warnOfShortTTL() }) })
	}
	if !c.addHold(h) {
		return nil, ErrClosed
	}
	if !c.keeper.Add(&h.item, maxHold, h) {
		if h.overBy(ErrClosed) {
			return nil, ErrClosed
		}
		return nil, backend.Fail(ErrUnavailable, errTooLate)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if over := h.over.Load(); over != nil {
		return nil, over.err()
	}
	if !h.item.Hold.WantedAtOnce {
		h.limitHandOvers() // another client may wait
	}
	return h.addLease(&h.first, nil, h.item.Hold.Mode), nil
}

// rejectGrant releases a hold that could not start.
func (h *hold) rejectGrant() {
	if h.endLeases(&reason{kind: ErrLost}) || h.overBy(ErrLost) {
		h.lock.client.cleanUp(h)
	}
}

// addLease opens e as a lease under parent. The caller holds h.mu.
func (h *hold) addLease(e, parent *entry, mode backend.Mode) *Lease {
	e.lock, e.hold, e.parent, e.mode, e.fencingToken = h.lock, h, parent, mode, h.item.Hold.Token
	h.leases = append(h.leases, e)
	e.place = int32(len(h.leases))
	if parent != nil {
		h.nested++
	}
	h.seq++
	e.handle = &Lease{e}
	return e.handle
}

// closeLease takes e out of the open leases. The last of them gets its place, so that
// one of very many leaves at no cost. The caller holds h.mu.
func (h *hold) closeLease(e *entry) {
	last := len(h.leases) - 1
	h.leases[e.place-1] = h.leases[last]
	h.leases[e.place-1].place = e.place
	h.leases[last] = nil
	h.leases = h.leases[:last]
	e.place, e.handle = 0, nil
	if e.parent != nil {
		h.nested--
	}
}

// removeLease closes e, once. It returns how many leases are left and the sequence number
// of that change. Over is the kind of end of e or of the hold if that was over before.
// Removing the last lease ends the hold.
func (h *hold) removeLease(e *entry) (entries int, seq int64, over error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e.place == 0 {
		return len(h.leases), h.seq, ErrUnlocked
	}
	h.closeLease(e)
	h.seq++
	if r := h.over.Load(); r != nil {
		over = r.kind
	} else if len(h.leases) == 0 {
		h.over.Store(unlocked)
		h.startMinHold()
	}
	return len(h.leases), h.seq, over
}

// endLeases ends h and all its leases at one moment: from then on every call on any of
// them says so. It reports false if h had already ended.
func (h *hold) endLeases(r *reason) bool {
	h.mu.Lock()
	if h.over.Load() != nil {
		h.mu.Unlock()
		return false
	}
	open := slices.Clone(h.leases)
	for _, e := range open {
		if g := e.group.Load(); g != nil {
			g.endFor(e, r)
		}
	}
	h.over.Store(r)
	h.startMinHold()
	h.mu.Unlock()
	for _, e := range open {
		e.notify(true)
	}
	return true
}

// openLeases returns the leases that are not yet unlocked.
func (h *hold) openLeases() []*entry {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.leases)
}

func (h *hold) wasStarted() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.seq > 0
}

// overBy reports whether h is over for a reason of that kind.
func (h *hold) overBy(kind error) bool {
	r := h.over.Load()
	return r != nil && r.kind == kind
}

// Renewed implements renewal.Owner.
func (h *hold) Renewed(before renewal.Lease) {
	h.watchForDrops()
	c := h.lock.client
	f := c.opts.Hooks.Renewed
	if f == nil && !c.logsRenewals() {
		return
	}
	e := h.renewalEvent(before, nil)
	if isLate(before) {
		c.logRenewal(e)
	}
	if f != nil {
		f(RenewedEvent{Name: e.Name, Shared: e.Shared, Token: e.Token, Left: e.Left, TTL: e.TTL})
	}
}

// RenewalFailed implements renewal.Owner.
func (h *hold) RenewalFailed(now renewal.Lease, cause error) {
	c := h.lock.client
	f := c.opts.Hooks.RenewalFailed
	if f == nil && !c.logsRenewals() {
		return
	}
	e := h.renewalEvent(now, cause)
	c.logRenewal(e)
	if f != nil {
		f(e)
	}
}

func (h *hold) renewalEvent(lease renewal.Lease, cause error) RenewalFailedEvent {
	h.mu.Lock()
	defer h.mu.Unlock()
	return RenewalFailedEvent{
		Name:   h.lock.name,
		Shared: h.item.Hold.Mode == backend.Shared,
		Token:  h.item.Hold.Token,
		Left:   lease.Left,
		TTL:    lease.Granted,
		Err:    cause,
	}
}

// until returns when the hold ends unless it is renewed, the zero time if it need not
// be.
func (h *hold) until() time.Time {
	left, ok := h.lock.client.keeper.Left(&h.item)
	if !ok {
		return time.Time{}
	}
	return time.Now().Add(left)
}

// check ends h if by the clock it is over, so that nobody is told otherwise.
func (h *hold) check() {
	if cause := h.lock.client.keeper.Expired(&h.item); cause != nil {
		h.Lost(cause)
	}
}

// watchForDrops begins to watch for leases that nobody can unlock any more,
// because nobody refers to them. It costs something, so it is done at the
// first renewal: most leases are over by then. The entry is not kept for it: it refers to the
// client, and whatever that refers to may refer to the lease.
func (h *hold) watchForDrops() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.leases {
		if e.handle != nil {
			runtime.AddCleanup(e.handle, dropped, weak.Make(e))
			e.handle = nil
		}
	}
}
