package dlock

import (
	"context"
	"maps"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A doorway is what a client knows of one name in use: the goroutines that
// queue for it and the holds it has. The client's mutex guards it.
type nameState struct {
	queue
	holds           *hold // a list, newest first
	waitingOnServer int   // calls that the server has told to wait
	unanswered      bool  // somebody in the queue is not answered
}

// held reports whether the lock is held for all that is known here. A hold of this
// client that was lost is nobody's, and a call that has had no answer says nothing.
func (d *nameState) isHeld() bool {
	if d.waitingOnServer > 0 {
		return true
	}
	for h := d.holds; h != nil; h = h.next {
		if !h.overBy(ErrLost) {
			return true
		}
	}
	return false
}

// answered tells the queue that the lock is held: those who wait for no more than
// that are turned away.
func (d *nameState) noteHeld() {
	if !d.unanswered {
		return
	}
	d.unanswered = false
	for w := d.head; w != nil; {
		next := w.next
		w.answered = true
		if w.tryOnly {
			d.remove(w)
			w.err = ErrHeld
			w.ready <- struct{}{}
		}
		w = next
	}
	d.admit()
}

// knock waits for this goroutine's turn to ask the backend for l. Nobody else
// of this client asks for it in a conflicting mode until leave. If a hold of
// this client serves instead, knock returns a lease on that. A call that must not
// wait for the lock waits here for an answer to those before it. Waited is for how long
// the call has been without any.
func (c *Client) enterOrQueue(ctx context.Context, l *lock, r request, n *waitingHook) (door *nameState, lease *Lease, waited time.Duration, err error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, nil, 0, ErrClosed
	}
	d := c.stateOf(l.fullName)
	if lease := d.joinReaders(l, r.mode); lease != nil {
		c.mu.Unlock()
		return d, lease, 0, nil
	}
	if d.tryEnter(r.mode) {
		c.mu.Unlock()
		return d, nil, 0, nil
	}
	held := d.isHeld()
	if held && !r.wait {
		c.mu.Unlock()
		return nil, nil, 0, ErrHeld
	}
	w := c.newWaiter(r.mode, l)
	w.tryOnly, w.answered = !r.wait, held
	if r.wait {
		d.wantAll()
	} else {
		n = nil
	}
	var start time.Time
	if !held {
		d.unanswered, start = true, time.Now()
	}
	defer func() {
		if lease != nil || door != nil {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.names[l.fullName] == d {
			c.keepIdle(l, d)
		}
	}()
	lease, answered, err := c.awaitTurn(ctx, &d.queue, w, nil, n)
	if err != nil {
		return nil, nil, 0, err
	}
	if !answered {
		waited = time.Since(start)
	}
	return d, lease, waited, nil
}

// leave ends the entry of h, which could not be had, into its doorway.
func (c *Client) leaveName(h *hold, mode backend.Mode) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h.endRequest()
	h.state.queue.leave(mode)
	c.keepIdle(h.lock, h.state)
}

// asked says that there is an answer to the request for h. It is called with the
// client's mutex held.
func (h *hold) endRequest() {
	if h.requestCtx != nil && h.isWaiting {
		h.state.waitingOnServer--
	}
	h.requestCtx = nil
}

// doorway returns the one of name. It is called with c.mu held.
func (c *Client) stateOf(name string) *nameState {
	if d := c.idleState; d != nil && c.idleName == name {
		c.idleState = nil
		return d
	}
	d := c.names[name]
	if d == nil {
		d = new(nameState)
		c.names[name] = d
		c.mostNames = max(c.mostNames, len(c.names))
	}
	return d
}

// tidy forgets d, the doorway of l, when nobody needs it any more, or rather the
// one before it: whoever locks one name again and again finds its doorway. It is
// called with c.mu held.
func (c *Client) keepIdle(l *lock, d *nameState) {
	if !d.isIdle() || d.holds != nil || d == c.idleState {
		return
	}
	if c.idleState != nil {
		c.forget(c.idleName)
	}
	c.idleState, c.idleName = d, l.fullName
}

// forget deletes a name. A map keeps the room that it once needed, so after very many
// names there is a new one. It is called with c.mu held.
func (c *Client) forget(name string) {
	delete(c.names, name)
	if n := len(c.names); c.mostNames >= 1024 && n < c.mostNames/8 {
		c.names, c.mostNames = maps.Collect(maps.All(c.names)), n
	}
}

// want tells the holders of d that somebody of this client waits. It is
// called with the client's mutex held.
func (d *nameState) wantAll() {
	for h := d.holds; h != nil; h = h.next {
		h.wantedLocally()
	}
}

// hang adds h to the holds of its doorway, unless the client is closed.
func (c *Client) addHold(h *hold) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	h.endRequest()
	if c.closed {
		return false
	}
	d := h.state
	h.next = d.holds
	if h.next != nil {
		h.next.prev = h
	}
	d.holds = h
	d.noteHeld()
	if d.head != nil {
		h.wantedLocally()
	}
	return true
}

// unhang takes h out of the holds of its doorway and ends its entry, once.
func (c *Client) removeHold(h *hold) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.removed {
		return
	}
	h.removed = true
	d := h.state
	if h.prev != nil {
		h.prev.next = h.next
	} else if d.holds == h {
		d.holds = h.next
	}
	if h.next != nil {
		h.next.prev = h.prev
	}
	d.queue.leave(h.item.Hold.Mode) // changed with the client's mutex held
	c.keepIdle(h.lock, d)
}
