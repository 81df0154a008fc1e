package dlock

import (
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// Once somebody of another client waits, a hold serves maxPasses more owners at
// most, who come within maxPassing, before it goes back to the server.
const (
	maxPasses  = 16
	maxPassing = 10 * time.Millisecond
)

// A passage bounds the passing of one hold, whose mutex guards it.
type passage struct {
	since   time.Duration // when that began, by the keeper's clock
	passes  uint16        // from then on
	bounded bool          // somebody of another client waits, or may
	least   time.Duration // of the lease that must be left for whoever is next
	queued  atomic.Bool   // somebody of this client waits, or did; needs no mutex
}

// enough is how much of a lease must be left for whoever is next: a third of what
// the server has granted, which may be less than was asked for.
func enough(h *backend.Hold) time.Duration {
	if h.Granted > 0 {
		return min(h.TTL, h.Granted) / 3
	}
	return h.TTL / 3
}

func (p *passage) bound(now time.Duration) {
	if !p.bounded {
		p.bounded, p.since = true, now
	}
}

// pass unlocks e by handing the lock to the goroutine that is next in the
// queue of this client, with no request to the server. It reports false if the
// server has to be asked: nobody waits here, or for another kind of hold,
// somebody of another client has waited for long enough, or the lease has to
// be renewed first.
func (e *entry) pass() bool { return e.group.Load() == nil && e.passOn() }

// passOn is pass, also for a part of a lease that is over.
func (e *entry) passOn() bool {
	h, c := e.hold, e.client()
	if c.transferer == nil || !h.queued.Load() {
		return false
	}
	held, ok := c.pass(e)
	if !ok {
		return false
	}
	e.settle(false)
	if f := c.opts.Hooks.Released; f != nil {
		f(Event{Name: h.lock.name(), Token: e.fence, Held: held})
	}
	return true
}

func (c *Client) pass(e *entry) (held time.Duration, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := e.hold
	d := h.door
	w := d.head
	if w == nil || c.closed || w.mode != backend.Exclusive || !h.serves(w.lock, w.mode) {
		return 0, false
	}
	next, held := h.move(e, w.next != nil)
	if next == nil {
		return 0, false
	}
	d.remove(w)
	w.granted, w.lease = true, next
	w.ready <- struct{}{}
	return held, true
}

// join enters a shared hold that this client has already, so that its readers
// need one hold between them. It returns nil if there is none that may be
// entered. It is called with the client's mutex held.
func (d *doorway) join(l *lock, mode backend.Mode) *Lease {
	h := d.holds
	if mode != backend.Shared || h == nil || d.head != nil || !h.serves(l, mode) {
		return nil
	}
	k := l.client.keeper
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over.Load() != nil || !h.live || !h.mayPass(k.Now) || !k.Lasts(&h.item, h.least) {
		return nil
	}
	return h.enter(new(entry), nil, mode)
}

// serves reports whether h is on the server just what l needs in that mode. It
// is called with the client's mutex held.
func (h *hold) serves(l *lock, mode backend.Mode) bool {
	return l != nil && mode == h.item.Hold.Mode && l.ttl == h.lock.ttl && l.anyLength() && h.lock.anyLength()
}

// anyLength reports whether a hold may last for any time.
func (l *lock) anyLength() bool { return l.minHold == 0 && l.maxHold == 0 }

// move closes e, the last lease on h, and opens the next one for its next
// owner. Queued says whether another one waits after that. It returns no lease,
// and does nothing, if h cannot be passed on. Held is how long e had it.
func (h *hold) move(e *entry, queued bool) (next *Lease, held time.Duration) {
	k := h.lock.client.keeper
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over.Load() != nil || h.weak || e.gone || h.open != e || e.older != nil || !h.mayPass(k.Now) {
		return nil, 0
	}
	token, ok := h.lock.client.transferer.Transfer(h.item.Hold)
	if !ok {
		return nil, 0
	}
	if held, ok = k.Restart(&h.item, h.least); !ok {
		return nil, 0
	}
	if !e.over.CompareAndSwap(nil, unlocked) && e.group.Load() == nil {
		return nil, 0 // whoever has ended it gives the lock back
	}
	e.gone = true
	h.item.Hold.Token = token
	h.open, h.entries, h.nested, e.handle = nil, 0, 0, nil
	h.queued.Store(queued)
	h.isWant, h.wanted = queued || h.bounded, nil
	return h.enter(new(entry), nil, backend.Exclusive), held
}

// mayPass reports whether one more may have h without asking the server.
func (h *hold) mayPass(now func() time.Duration) bool {
	if !h.bounded {
		return true
	}
	if h.passes == maxPasses || now()-h.since >= maxPassing {
		return false
	}
	h.passes++
	return true
}
