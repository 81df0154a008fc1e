package dlock

import (
	"context"

	"github.com/dlock-go/dlock/backend"
)

// A doorway is what a client knows of one name in use: the goroutines that
// queue for it and the holds it has. The client's mutex guards it.
type doorway struct {
	gate
	holds *hold // a list, newest first
}

// knock waits for this goroutine's turn to ask the backend for l. Nobody else
// of this client asks for it in a conflicting mode until leave. If a hold of
// this client serves instead, knock returns a lease on that.
func (c *Client) knock(ctx context.Context, l *lock, r request, n *notice) (*doorway, *Lease, error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, nil, ErrClosed
	}
	d := c.doorway(l.fullName)
	if lease := d.join(l, r.mode); lease != nil {
		c.mu.Unlock()
		return d, lease, nil
	}
	if d.tryEnter(r.mode) {
		c.mu.Unlock()
		return d, nil, nil
	}
	if !r.wait {
		c.mu.Unlock()
		return nil, nil, ErrHeld
	}
	d.want()
	lease, err := c.await(ctx, &d.gate, c.newWaiter(r.mode, l), nil, n)
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.names[l.fullName] == d {
			c.tidy(l, d)
		}
		return nil, nil, err
	}
	return d, lease, nil
}

// await queues w at g until this goroutine is let in, or has a lease. It is
// called with c.mu held and returns without it. It fails if ctx or parent, which
// may be nil, ends first, or if it is turned away.
func (c *Client) await(ctx context.Context, g *gate, w *waiter, parent <-chan struct{}, n *notice) (*Lease, error) {
	g.enqueue(w)
	c.mu.Unlock()
	n.Queued()

	if ctx.Done() == nil && parent == nil { // half the price of a select
		<-w.ready
		return c.letIn(w)
	}
	var err error
	select {
	case <-w.ready:
		return c.letIn(w)
	case <-ctx.Done():
		err = backend.WaitEnded(ctx, true)
	case <-parent:
		err = errParentEnded
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.granted || w.err != nil {
		<-w.ready
		if w.lease != nil || w.err != nil {
			return c.letIn(w)
		}
	}
	g.abandon(w)
	_, _ = c.letIn(w)
	return nil, err
}

func (c *Client) newWaiter(mode backend.Mode, l *lock) *waiter {
	w, _ := c.waiters.Get().(*waiter)
	if w == nil {
		w = &waiter{ready: make(chan struct{}, 1)}
	}
	w.mode, w.lock, w.granted = mode, l, false
	return w
}

// letIn ends the use of w and returns what it may have been given.
func (c *Client) letIn(w *waiter) (lease *Lease, err error) {
	lease, err = w.lease, w.err
	w.lease, w.err, w.lock = nil, nil, nil
	c.waiters.Put(w)
	return lease, err
}

// leave ends an entry into d, the doorway of l.
func (c *Client) leave(l *lock, d *doorway, mode backend.Mode) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d.gate.leave(mode)
	c.tidy(l, d)
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
		delete(c.names, c.idleName)
	}
	c.idle, c.idleName = d, l.fullName
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
	if c.closed {
		return false
	}
	d := h.door
	h.next = d.holds
	if h.next != nil {
		h.next.prev = h
	}
	d.holds = h
	if d.head != nil {
		h.wantedHere()
	}
	return true
}

// unhang takes h out of the holds of its doorway and ends its entry.
func (c *Client) unhang(h *hold) {
	c.mu.Lock()
	defer c.mu.Unlock()
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
