package dlock

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
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

	// Guarded by the client's mutex.
	prev, next *hold    // in door.holds
	off        bool     // it is not there any more
	question   *limited // the context in which it is asked for; nil: that is over
	isQueued   bool     // the server has told it to wait

	over  atomic.Pointer[reason] // nil: it goes on; set with mu held
	brief atomic.Bool            // it need not last for the shortest time

	mu      sync.Mutex
	open    *entry        // leases not yet unlocked, newest first
	entries int32         // how many of them
	nested  int32         // and how many of those were made under another
	seq     int32         // counts the changes of entries
	live    bool          // from the first lease on
	weak    bool          // a downgrade was begun: it is nobody's to write under any more
	isWant  bool          // somebody waits for the lock
	resting chan struct{} // closed when its rest ends; nil: this process keeps it for no rest
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
	if h.item.Hold.TTL < practicalTTL {
		c.short.Do(c.warnOfShortTTL)
	}
	if !c.hang(h) {
		return nil, ErrClosed
	}
	least := enough(h.item.Hold) // which changes with the first renewal
	if !c.keeper.Add(&h.item, h.lock.maxHold, h) {
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
		h.bound(c.keeper.Now()) // for all we know somebody waits
	}
	h.live, h.least = true, least
	return h.enter(&h.first, nil, h.item.Hold.Mode), nil
}

// refuse gives back a hold that could not begin.
func (h *hold) refuse() {
	if h.finish(&reason{kind: ErrLost}) || h.overBy(ErrLost) {
		h.lock.client.abandon(h)
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

// exit closes e, once. It returns how many leases are left, with the number of that
// change, and what kind of end e or the hold has had before. The last exit ends it.
func (h *hold) exit(e *entry) (entries, seq int32, over error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e.gone {
		return h.entries, h.seq, ErrUnlocked
	}
	e.gone = true
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
	if r := h.over.Load(); r != nil {
		over = r.kind
	} else if h.entries == 0 {
		h.over.Store(unlocked)
		h.beginRest()
	}
	return h.entries, h.seq, over
}

// finish ends h, and with it all its leases in one moment: from then on each says
// so, whoever has been told by then. It reports false if h was over before.
func (h *hold) finish(r *reason) bool {
	h.mu.Lock()
	if h.over.Load() != nil {
		h.mu.Unlock()
		return false
	}
	h.over.Store(r)
	h.beginRest()
	open := h.leases()
	h.mu.Unlock()
	for _, e := range open {
		e.settle(true)
	}
	return true
}

// leases returns the open leases. It is called with h.mu held.
func (h *hold) leases() []*entry {
	open := make([]*entry, 0, h.entries)
	for e := h.open; e != nil; e = e.older {
		open = append(open, e)
	}
	return open
}

func (h *hold) isLive() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.live
}

// overBy reports whether h is over for a reason of that kind.
func (h *hold) overBy(kind error) bool {
	r := h.over.Load()
	return r != nil && r.kind == kind
}

// releaseNow gives h back. If the server cannot be told the janitor goes on
// trying.
func (h *hold) releaseNow(ctx context.Context) error {
	err := h.giveBack(ctx)
	h.released(err)
	return err
}

// giveBack releases h on the server, after the last renewal that is under way.
func (h *hold) giveBack(ctx context.Context) error {
	c := h.lock.client
	if !c.keeper.Remove(ctx, &h.item) {
		return backend.WaitEnded(ctx, false)
	}
	if rest := h.rest(); rest > 0 && c.expires(rest) {
		return c.expirer.Expire(ctx, h.item.Hold, rest)
	}
	return c.backend.Release(ctx, h.item.Hold)
}

// released frees the place of h, which was given back with err.
func (h *hold) released(err error) {
	c := h.lock.client
	c.unhang(h)
	switch {
	case err == nil:
		h.tell(c.opts.Hooks.Released, nil)
	case errors.Is(err, ErrLost):
		h.tell(c.opts.Hooks.Lost, newError("unlock", h.lock.name(), err))
	default:
		c.complain("release not confirmed", h.lock.name(), err)
		h.tell(c.opts.Hooks.Released, newError("unlock", h.lock.name(), err))
		c.owes(true, h)
		c.abandon(h)
	}
}

// usable returns ctx, or its values alone if it is done already. A deadline is that
// of ctx, or how long a server has for an answer, within the TTL.
func (h *hold) usable(ctx context.Context) (context.Context, context.CancelFunc) {
	ttl := h.item.Hold.TTL
	if ctx.Err() != nil {
		return backend.Detach(ctx, min(ttl, backend.FirstAnswer))
	}
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	l := within(ctx, ttl)
	return l, l.end
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

// Queued implements backend.Observer: the lock is held, as the server says.
func (h *hold) Queued() {
	c := h.lock.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.question == nil || h.isQueued {
		return
	}
	h.isQueued = true
	h.question.lift()
	h.door.queued++
	h.door.answered()
}

// Answered lifts the limit on the first answer, for Request.Answered.
func (h *hold) Answered() {
	c := h.lock.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.question != nil {
		h.question.lift()
	}
}

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

// until returns when the hold ends unless it is renewed, the zero time if it need not
// be.
func (h *hold) until() time.Time {
	left, ok := h.lock.client.keeper.Left(&h.item)
	if !ok {
		return time.Time{}
	}
	return time.Now().Add(left)
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
