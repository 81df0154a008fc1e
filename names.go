package dlock

import (
	"context"
	"maps"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A nameState is what a client knows of one name that is in use: the goroutines that
// wait for it, and its holds. The client's mutex guards it.
type nameState struct {
	queue
	holds           *hold // newest first
	waitingOnServer int   // number of requests that wait on the server
	unanswered      bool  // somebody in the queue does not know yet whether the lock is held
}

// isHeld reports whether the lock is known to be held. A lost hold of this client does
// not count, nor does a request that has had no answer.
func (s *nameState) isHeld() bool {
	if s.waitingOnServer > 0 {
		return true
	}
	for h := s.holds; h != nil; h = h.next {
		if !h.overBy(ErrLost) {
			return true
		}
	}
	return false
}

// noteHeld tells the queue that the lock is held. Waiters that only wanted to know
// that, from TryLock, fail with ErrHeld.
func (s *nameState) noteHeld() {
	if !s.unanswered {
		return
	}
	s.unanswered = false
	for w := s.head; w != nil; {
		next := w.next
		w.answered = true
		if w.tryOnly {
			s.remove(w)
			w.err = ErrHeld
			w.ready <- struct{}{}
		}
		w = next
	}
	s.admit()
}

// enterOrQueue waits for this goroutine's turn to ask the backend for l. Until
// leaveName no other goroutine of this client asks for it in a conflicting mode. If a
// hold of this client will do, it returns a lease on that hold instead. A TryLock
// waits here only until the calls before it are answered. Waited is how long the call
// has waited without any answer.
func (c *Client) enterOrQueue(ctx context.Context, l *lock, r request, o *queueObserver) (state *nameState, lease *Lease, waited time.Duration, err error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, nil, 0, ErrClosed
	}
	s := c.stateOf(l.fullName)
	if lease := s.joinReaders(l, r.mode); lease != nil {
		c.mu.Unlock()
		return s, lease, 0, nil
	}
	if s.tryEnter(r.mode) {
		c.mu.Unlock()
		return s, nil, 0, nil
	}
	held := s.isHeld()
	if held && !r.wait {
		c.mu.Unlock()
		return nil, nil, 0, ErrHeld
	}
	w := c.newWaiter(r.mode, l)
	w.tryOnly, w.answered = !r.wait, held
	if r.wait {
		s.wantAll()
	} else {
		o = nil
	}
	var start time.Time
	if !held {
		s.unanswered, start = true, time.Now()
	}
	defer func() {
		if lease != nil || state != nil {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.names[l.fullName] == s {
			c.keepIdle(l, s)
		}
	}()
	lease, answered, err := c.awaitTurn(ctx, &s.queue, w, nil, o)
	if err != nil {
		return nil, nil, 0, err
	}
	if !answered {
		waited = time.Since(start)
	}
	if lease != nil && r.call != nil {
		r.call.handOver = LocalHandOver
	}
	return s, lease, waited, nil
}

// leaveName ends the turn of a request for h that has failed.
func (c *Client) leaveName(h *hold, mode backend.Mode) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h.endRequest()
	h.state.queue.leave(mode)
	c.keepIdle(h.lock, h.state)
}

// endRequest notes that the request for h has been answered. The caller holds the
// client's mutex.
func (h *hold) endRequest() {
	if h.requestCtx != nil && h.isWaiting {
		h.state.waitingOnServer--
	}
	h.requestCtx = nil
}

// stateOf returns the state of name, a new one if there is none. The caller holds
// c.mu.
func (c *Client) stateOf(name string) *nameState {
	if s := c.idleState; s != nil && c.idleName == name {
		c.idleState = nil
		return s
	}
	s := c.names[name]
	if s == nil {
		s = new(nameState)
		c.names[name] = s
		c.mostNames = max(c.mostNames, len(c.names))
	}
	return s
}

// keepIdle keeps s, which nobody may need any more, until the next name becomes idle:
// a program that locks one name again and again finds its state. The caller holds
// c.mu.
func (c *Client) keepIdle(l *lock, s *nameState) {
	if !s.isIdle() || s.holds != nil || s == c.idleState {
		return
	}
	if c.idleState != nil {
		c.forget(c.idleName)
	}
	c.idleState, c.idleName = s, l.fullName
}

// forget deletes a name. A Go map never shrinks, so a new map replaces it after very
// many names. The caller holds c.mu.
func (c *Client) forget(name string) {
	delete(c.names, name)
	if n := len(c.names); c.mostNames >= 1024 && n < c.mostNames/8 {
		c.names, c.mostNames = maps.Collect(maps.All(c.names)), n
	}
}

// wantAll tells the holders that somebody of this client waits. The caller holds the
// client's mutex.
func (s *nameState) wantAll() {
	for h := s.holds; h != nil; h = h.next {
		h.wantedLocally()
	}
}

// addHold adds h to the holds of its name. It reports false if the client is closed.
func (c *Client) addHold(h *hold) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	h.endRequest()
	if c.closed {
		return false
	}
	s := h.state
	h.next = s.holds
	if h.next != nil {
		h.next.prev = h
	}
	s.holds = h
	s.noteHeld()
	if s.head != nil {
		h.wantedLocally()
	}
	return true
}

// removeHold removes h from the holds of its name and ends its turn, once.
func (c *Client) removeHold(h *hold) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.removed {
		return
	}
	h.removed = true
	s := h.state
	if h.prev != nil {
		h.prev.next = h.next
	} else if s.holds == h {
		s.holds = h.next
	}
	if h.next != nil {
		h.next.prev = h.prev
	}
	s.queue.leave(h.item.Hold.Mode) // Mode changes only with the client's mutex held
	c.keepIdle(h.lock, s)
}
