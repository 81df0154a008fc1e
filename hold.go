package dlock

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/keepalive"
)

// A hold is a lock that this client has on the server, with all leases that
// share it: the one that took it and those that entered it again.
//
// Locks are taken in the order client, hold, ending.
type hold struct {
	lock *lock
	door *doorway
	item keepalive.Item // with the hold on the server

	prev, next *hold // in door.holds, guarded by the client's mutex

	mu      sync.Mutex
	over    *reason // nil: it goes on
	open    *entry  // leases not yet unlocked, newest first
	entries int32   // how many of them
	nested  int32   // and how many of those were made under another
	seq     int32   // counts the changes of entries
	live    bool    // from the first lease on
	weak    bool    // a downgrade was begun: it is nobody's to write under any more
	brief   bool    // it need not last for the shortest time
	isWant  bool    // somebody waits for the lock
	wanted  chan struct{}
	passage

	first entry // the lease that took the lock
}

var (
	_ keepalive.Owner  = (*hold)(nil)
	_ backend.Observer = (*hold)(nil)
)

// begin makes h live with its first lease. It fails if the server's answer
// came too late to be of use, or the client was closed meanwhile.
func (h *hold) begin() (*Lease, error) {
	c := h.lock.client
	if !c.hang(h) {
		return nil, ErrClosed
	}
	if !c.keeper.Add(&h.item, h.lock.maxHold, h) {
		if h.overBy(ErrClosed) {
			return nil, ErrClosed
		}
		return nil, backend.Fail(ErrUnavailable, errTooLate)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over != nil {
		return nil, h.over.err()
	}
	if !h.item.Hold.TellsWanted {
		h.bound(c.keeper.Now()) // for all we know somebody waits
	}
	h.live = true
	return h.enter(&h.first, nil, h.item.Hold.Mode), nil
}

// refuse gives back a hold that could not begin.
func (h *hold) refuse() {
	if h.finish(ErrLost, nil) || h.overBy(ErrLost) {
		h.abandon()
	}
}

// enter opens e as a lease under parent. It is called with h.mu held.
func (h *hold) enter(e, parent *entry, mode backend.Mode) *Lease {
	e.hold, e.parent, e.mode, e.fence = h, parent, mode, h.item.Hold.Token
	e.older = h.open
	if e.older != nil {
		e.older.newer = e
	}
	h.open = e
	h.entries++
	if parent != nil {
		h.nested++
	}
	h.seq++
	e.handle = &Lease{e}
	h.item.Tell() // so that it is watched
	return e.handle
}

// exit closes e. It returns how many leases are left, with the number of that
// change, and what kind of end the hold has had before. The last exit ends it.
func (h *hold) exit(e *entry) (entries, seq int32, over error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e.newer != nil {
		e.newer.older = e.older
	} else {
		h.open = e.older
	}
	if e.older != nil {
		e.older.newer = e.newer
	}
	e.newer, e.older, e.handle = nil, nil, nil
	h.entries--
	if e.parent != nil {
		h.nested--
	}
	h.seq++
	switch {
	case h.over != nil:
		over = h.over.kind
	case h.entries == 0:
		h.over = unlocked
	}
	return h.entries, h.seq, over
}

// finish marks h as over and ends its open leases. It reports false if h was
// over before.
func (h *hold) finish(kind, cause error) bool {
	h.mu.Lock()
	if h.over != nil {
		h.mu.Unlock()
		return false
	}
	h.over = reasonOf(kind, cause)
	var open []*entry
	for e := h.open; e != nil; e = e.older {
		open = append(open, e)
	}
	h.mu.Unlock()
	for _, e := range open {
		e.end(h.lock.name(), kind, cause)
	}
	return true
}

// Lost implements backend.Observer and keepalive.Owner: it ends all leases
// with ErrLost, and sees to it that nothing of the hold stays on the server.
func (h *hold) Lost(cause error) {
	cause = without(ErrLost, cause)
	if h.tooEarly(cause) || !h.finish(ErrLost, cause) {
		return
	}
	report := func(context.Context) {
		c := h.lock.client
		c.complain("lock lost", h.lock.name(), cause)
		h.tell(c.opts.Hooks.Lost, newError("hold", h.lock.name(), backend.Fail(ErrLost, cause)))
	}
	// Others that are lost just now do not wait for the logger and the hook.
	if !h.lock.client.janitor.Go(report) {
		report(nil)
	}
	h.abandon()
}

// tooEarly notes a loss that is reported before the hold is live.
func (h *hold) tooEarly(cause error) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.live && h.over == nil {
		h.over = reasonOf(ErrLost, cause)
	}
	return !h.live
}

// overBy reports whether h is over for a reason of that kind.
func (h *hold) overBy(kind error) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.over != nil && h.over.kind == kind
}

// abandon clears up after a hold that is over: a renewal under way may have
// revived it on the server.
func (h *hold) abandon() {
	c := h.lock.client
	ok := c.janitor.Go(func(ctx context.Context) {
		ctx, cancel := backend.Bound(ctx, h.item.Hold.TTL)
		defer cancel()
		err := h.clearUp(ctx)
		c.unhang(h)
		if err != nil {
			backend.Retry(ctx, h.clearUp)
		}
	})
	if !ok {
		c.unhang(h)
	}
}

// giveBack releases h on the server, after the last renewal that is under way.
func (h *hold) giveBack(ctx context.Context) error {
	c := h.lock.client
	if !c.keeper.Remove(ctx, &h.item) {
		return backend.WaitEnded(ctx, false)
	}
	return c.backend.Release(ctx, h.item.Hold)
}

// clearUp is giveBack of a hold that is over: one that is gone on the server is
// as good as released.
func (h *hold) clearUp(ctx context.Context) error {
	err := h.giveBack(ctx)
	if errors.Is(err, ErrLost) || errors.Is(err, ErrClosed) {
		return nil
	}
	return err
}

// release ends h after its last lease was unlocked, or puts that off until
// the shortest time for which it must be held.
func (h *hold) release(ctx context.Context) error {
	var rest time.Duration
	if h.lock.minHold > 0 && !h.isBrief() {
		rest = h.lock.minHold - h.held()
	}
	if rest <= 0 {
		return h.releaseNow(ctx)
	}
	h.lock.client.janitor.Go(func(ctx context.Context) {
		if backend.Sleep(ctx, rest) {
			_ = h.releaseNow(ctx)
		}
	})
	return nil
}

// releaseNow gives h back. If the server cannot be told the janitor goes on
// trying.
func (h *hold) releaseNow(ctx context.Context) error {
	c := h.lock.client
	err := h.giveBack(ctx)
	c.unhang(h)

	switch {
	case err == nil:
		h.tell(c.opts.Hooks.Released, nil)
	case errors.Is(err, ErrLost):
		h.tell(c.opts.Hooks.Lost, newError("unlock", h.lock.name(), err))
	default:
		c.complain("release not confirmed", h.lock.name(), err)
		h.tell(c.opts.Hooks.Released, newError("unlock", h.lock.name(), err))
		c.janitor.Do(h.item.Hold.TTL, h.clearUp)
	}
	return err
}

// usable returns ctx, or its values alone for the length of a TTL if it is
// done already.
func (h *hold) usable(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() == nil {
		return ctx, func() {}
	}
	return backend.Detach(ctx, h.item.Hold.TTL)
}

// cutShort has h not last longer than its leases.
func (h *hold) cutShort() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.brief = true
}

func (h *hold) isBrief() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.brief
}

// close ends h because its client is closed.
func (h *hold) close(ctx context.Context) {
	if h.finish(ErrClosed, nil) {
		_ = h.release(ctx)
	}
}

// Renewed implements keepalive.Owner.
func (h *hold) Renewed(left time.Duration) (again bool) {
	h.watchForDrops()
	f := h.lock.client.opts.Hooks.Renewed
	if f == nil {
		return false
	}
	e := h.event(nil)
	e.Left = left
	f(e)
	return true
}

// Queued implements backend.Observer: nobody wants to know.
func (h *hold) Queued() {}

// Wanted implements backend.Observer: somebody of another client waits.
func (h *hold) Wanted() {
	now := h.lock.client.keeper.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.bound(now)
	h.want()
}

// wantedHere says that somebody of this client waits.
func (h *hold) wantedHere() {
	if h.queued.Swap(true) {
		return // and the holder was told
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.want()
}

// want is called with h.mu held.
func (h *hold) want() {
	if h.isWant {
		return
	}
	h.isWant = true
	if h.wanted != nil {
		close(h.wanted)
	}
}

// whenWanted returns the channel that Wanted closes, nil if the backend cannot
// tell.
func (h *hold) whenWanted() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.item.Hold.TellsWanted {
		return nil
	}
	if h.wanted == nil {
		h.wanted = make(chan struct{})
		if h.isWant {
			close(h.wanted)
		}
	}
	return h.wanted
}

// check ends h if by the clock it is over, so that nobody is told otherwise.
func (h *hold) check() {
	if cause := h.lock.client.keeper.Expired(&h.item); cause != nil {
		h.Lost(cause)
	}
}

// held is how long h has lasted.
func (h *hold) held() time.Duration { return h.lock.client.keeper.Age(&h.item) }

// tell calls a hook, if there is one, with what became of h.
func (h *hold) tell(f func(Event), err error) {
	if f != nil {
		f(h.event(err))
	}
}

func (h *hold) event(err error) Event {
	held := h.held()
	h.mu.Lock()
	defer h.mu.Unlock()
	return Event{
		Name:   h.lock.name(),
		Shared: h.item.Hold.Mode == backend.Shared,
		Token:  h.item.Hold.Token,
		Held:   held,
		Err:    err,
	}
}

// watchForDrops begins to watch for leases that nobody can unlock any more,
// because nobody refers to them. It costs something, so it is done at the
// first renewal: most leases are over by then.
func (h *hold) watchForDrops() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for e := h.open; e != nil; e = e.older {
		if e.handle != nil {
			runtime.AddCleanup(e.handle, (*entry).dropped, e)
			e.handle = nil
		}
	}
}
