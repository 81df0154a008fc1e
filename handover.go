package dlock

import (
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// While another client waits, a hold serves at most maxHandOvers further owners, within
// maxHandOverTime, before it goes back to the server.
const (
	maxHandOvers    = 16
	maxHandOverTime = 10 * time.Millisecond
)

// A handOverLimit bounds how often and how long a hold passes between goroutines of
// one client while another client waits. The hold's mutex guards it.
type handOverLimit struct {
	since           time.Time   // when isLimited was set
	handOvers       uint16      // how many since then
	isLimited       bool        // another client waits, or may wait
	othersWait      bool        // another client is known to wait, or to have waited
	hasLocalWaiters atomic.Bool // another goroutine of this client waits or has waited; atomic
}

func (p *handOverLimit) limitHandOvers() {
	if !p.isLimited {
		p.isLimited, p.since = true, time.Now()
	}
}

// handOver ends the lease and gives the hold to the next goroutine in the queue of
// this client, without a request to the server. It reports false if the server must be
// asked instead: nobody waits here, the next waiter needs another kind of hold,
// another client has waited for long enough, or too little of the lease is left.
func (e *entry) handOver() bool { return e.group.Load() == nil && e.tryHandOver() }

// tryHandOver is handOver, and also does it for a lease that is part of a multi-lock: for
// each part when the multi-lock has ended.
func (e *entry) tryHandOver() bool {
	h, c := e.hold, e.lock.client
	if c.transferer == nil || !h.hasLocalWaiters.Load() || !c.passToFirstWaiter(e) {
		return false
	}
	e.notify(false)
	return true
}

// passToFirstWaiter gives e's hold to the first waiter in the local queue. It reports
// whether it has.
func (c *Client) passToFirstWaiter(e *entry) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	h, q := e.hold, &e.hold.state.queue
	w := q.First()
	if w == nil || c.closed || w.Mode() != backend.Exclusive || !h.matches(w.Value.lock, w.Mode()) {
		return false
	}
	next := h.passToNext(e, q.Len() > 1)
	if next == nil {
		return false
	}
	w.Value.lease = next
	q.HandOver()
	return true
}

// joinReaders adds a lease to a shared hold that this client already has, so that its
// readers need only one hold on the server. It returns nil if there is no such hold.
// The caller holds the client's mutex.
func (s *nameState) joinReaders(l *lock, mode backend.Mode) *Lease {
	if mode != backend.Shared || len(s.holds) == 0 || s.queue.Len() > 0 {
		return nil
	}
	h := s.holds[len(s.holds)-1]
	if !h.matches(l, mode) {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over.Load() != nil || h.seq == 0 || !h.mayHandOver() {
		return nil
	}
	return h.addLease(new(entry), nil, mode)
}

// matches reports whether h is just what l needs in that mode. The caller holds the
// client's mutex.
func (h *hold) matches(l *lock, mode backend.Mode) bool {
	return l != nil && mode == h.item.Hold.Mode && l.ttl == h.lock.ttl && l.label == h.lock.label && l.isUnbounded() && h.lock.isUnbounded()
}

// isUnbounded reports whether a hold of l may last for any time.
func (l *lock) isUnbounded() bool { return l.minHold == 0 && l.maxHold == 0 }

// passToNext closes e, the only lease on h, and opens a lease for the next owner.
// Queued says whether somebody waits behind that owner. It returns nil if h cannot be
// handed over, and h goes on as it is: a token that was drawn for it stays unused.
func (h *hold) passToNext(e *entry, queued bool) *Lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over.Load() != nil || h.isDowngrading || e.place == 0 || len(h.leases) > 1 || !h.mayHandOver() {
		return nil
	}
	token, ok := h.lock.client.transferer.Transfer(h.item.Hold)
	if !ok {
		return nil
	}
	// A part of a multi-lock has ended with it, and is passed on all the same.
	if !e.over.CompareAndSwap(nil, unlocked) && e.group.Load() == nil {
		return nil // whoever has ended the lease releases the lock
	}
	h.closeLease(e)
	h.item.Hold.Token = token
	h.hasLocalWaiters.Store(queued)
	h.wanted = signal{}
	if queued || h.othersWait {
		h.wanted.send()
	}
	return h.addLease(new(entry), nil, backend.Exclusive)
}

// mayHandOver reports whether h may go to one more owner without asking the server,
// and counts that owner. The caller holds h.mu.
func (h *hold) mayHandOver() bool {
	if !h.lock.client.keeper.HasThird(&h.item) {
		return false
	}
	if !h.isLimited {
		return true
	}
	if h.handOvers == maxHandOvers || time.Since(h.since) >= maxHandOverTime {
		return false
	}
	h.handOvers++
	return true
}

// Wanted implements backend.Observer: somebody of another client waits.
func (h *hold) Wanted() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.limitHandOvers()
	h.othersWait = true
	h.wanted.send()
}

// wantedLocally notes that somebody of this client waits.
func (h *hold) wantedLocally() {
	if h.hasLocalWaiters.Swap(true) {
		return // the holder knows already
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wanted.send()
}

// wantedChan returns the channel that is closed when somebody waits for the lock that the
// owner with that token has, nil if the backend cannot tell.
func (h *hold) wantedChan(token uint64) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case !h.item.Hold.TellsWanted:
		return nil
	case token != h.item.Hold.Token:
		return closedChan // it was passed on to somebody who waited
	}
	return h.wanted.channel()
}
