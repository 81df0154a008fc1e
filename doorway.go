package dlock

import (
	"context"
	"maps"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A doorway is what a client knows of one name in use: the goroutines that
// queue for it and the holds it has. The client's mutex guards it.
type doorway struct {
	gate
	holds  *hold // a list, newest first
	queued int   // calls that the server has told to wait
	unsure bool  // somebody in the queue is not answered
}

// held reports whether the lock is held for all that is known here. A hold of this
// client that was lost is nobody's, and a call that has had no answer says nothing.
func (d *doorway) held() bool {
	if d.queued > 0 {
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
func (d *doorway) answered() {
	if !d.unsure {
		return
	}
	d.unsure = false
	for w := d.head; w != nil; {
		next := w.next
		w.answered = true
		if w.try {
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
func (c *Client) knock(ctx context.Context, l *lock, r request, n *notice) (door *doorway, lease *Lease, waited time.Duration, err error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, nil, 0, ErrClosed
	}
	d := c.doorway(l.fullName)
	if lease := d.join(l, r.mode); lease != nil {
		c.mu.Unlock()
		return d, lease, 0, nil
	}
	if d.tryEnter(r.mode) {
		c.mu.Unlock()
		return d, nil, 0, nil
	}
	held := d.held()
	if held && !r.wait {
		c.mu.Unlock()
		return nil, nil, 0, ErrHeld
	}
	w := c.newWaiter(r.mode, l)
	w.try, w.answered = !r.wait, held
	if r.wait {
		d.want()
	} else {
		n = nil
	}
	var start time.Time
	if !held {
		d.unsure, start = true, time.Now()
	}
	defer func() {
		if lease != nil || door != nil {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.names[l.fullName] == d {
			c.tidy(l, d)
		}
	}()
	lease, answered, err := c.await(ctx, &d.gate, w, nil, n)
	if err != nil {
		return nil, nil, 0, err
	}
	if !answered {
		waited = time.Since(start)
	}
	return d, lease, waited, nil
}

// leave ends the entry of h, which could not be had, into its doorway.
func (c *Client) leave(h *hold, mode backend.Mode) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h.asked()
	h.door.gate.leave(mode)
	c.tidy(h.lock, h.door)
}

// asked says that there is an answer to the request for h. It is called with the
// client's mutex held.
func (h *hold) asked() {
	if h.question != nil && h.isQueued {
		h.door.queued--
	}
	h.question = nil
}

// doorway returns the one of name. It is called with c.mu held.
func (c *Client) doorway(name string) *doorway {
	if d := c.idle; d != nil && c.idleName == name {
		c.idle = nil
		return d
	}
	d := c.names[name]
	if d == nil {
		d = new(doorway)
		c.names[name] = d
		c.mostNames = max(c.mostNames, len(c.names))
	}
	return d
}

// tidy forgets d, the doorway of l, when nobody needs it any more, or rather the
// one before it: whoever locks one name again and again finds its doorway. It is
// called with c.mu held.
func (c *Client) tidy(l *lock, d *doorway) {
	if !d.idle() || d.holds != nil || d == c.idle {
		return
	}
	if c.idle != nil {
		c.forget(c.idleName)
	}
	c.idle, c.idleName = d, l.fullName
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
func (d *doorway) want() {
	for h := d.holds; h != nil; h = h.next {
		h.wantedHere()
	}
}

// hang adds h to the holds of its doorway, unless the client is closed.
func (c *Client) hang(h *hold) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	h.asked()
	if c.closed {
		return false
	}
	d := h.door
	h.next = d.holds
	if h.next != nil {
		h.next.prev = h
	}
	d.holds = h
	d.answered()
	if d.head != nil {
		h.wantedHere()
	}
	return true
}

// unhang takes h out of the holds of its doorway and ends its entry, once.
func (c *Client) unhang(h *hold) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.off {
		return
	}
	h.off = true
	d := h.door
	if h.prev != nil {
		h.prev.next = h.next
	} else if d.holds == h {
		d.holds = h.next
	}
	if h.next != nil {
		h.next.prev = h.prev
	}
	d.gate.leave(h.item.Hold.Mode) // changed with the client's mutex held
	c.tidy(h.lock, d)
}
