package dlock

import (
	"context"

	"github.com/dlock-go/dlock/backend"
)

// A doorway is what a client knows of one name in use: the goroutines that
// queue for it and the holds it has. The client's mutex guards it.
type doorway struct {
	gate
	name  string
	holds *hold // a list, newest first
}

// knock waits for this goroutine's turn to ask the backend for name. Nobody
// else of this client asks for it in a conflicting mode until leave. waiting
// is called if there is a wait.
func (c *Client) knock(ctx context.Context, name string, mode backend.Mode, wait bool, waiting func()) (*doorway, error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, ErrClosed
	}
	d := c.doorway(name)
	if d.tryEnter(mode) {
		c.mu.Unlock()
		return d, nil
	}
	if !wait {
		c.mu.Unlock()
		return nil, ErrHeld
	}
	d.want()
	err := c.await(ctx, &d.gate, mode, nil, waiting)
	if err == nil {
		return d, nil
	}
	c.mu.Lock()
	c.tidy(d)
	c.mu.Unlock()
	return nil, err
}

// await queues at g until this goroutine is let in. It is called with c.mu
// held and returns without it. It fails if ctx, the client or parent, which
// may be nil, ends first.
func (c *Client) await(ctx context.Context, g *gate, mode backend.Mode, parent <-chan struct{}, queued func()) error {
	w := c.newWaiter(mode)
	g.enqueue(w)
	c.mu.Unlock()
	queued()

	var err error
	select {
	case <-w.ready:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.recycle(w)
		return nil
	case <-ctx.Done():
		err = backend.WaitEnded(ctx, true)
	case <-c.closing:
		err = ErrClosed
	case <-parent:
		err = errParentEnded
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	g.abandon(w)
	if w.granted {
		<-w.ready
	}
	c.recycle(w)
	return err
}

// newWaiter returns a waiter, a used one if there is one. It is called with
// c.mu held. Not a sync.Pool: its channels would be shared by clients, and a
// channel must not leave its synctest bubble.
func (c *Client) newWaiter(mode backend.Mode) *waiter {
	w := c.spareWaiter
	if w == nil {
		w = &waiter{ready: make(chan struct{}, 1)}
	}
	c.spareWaiter = w.next
	w.mode, w.granted, w.next = mode, false, nil
	return w
}

func (c *Client) recycle(w *waiter) { w.next, c.spareWaiter = c.spareWaiter, w }

// leave ends an entry into d.
func (c *Client) leave(d *doorway, mode backend.Mode) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d.gate.leave(mode)
	c.tidy(d)
}

// doorway returns the one of name. It is called with c.mu held.
func (c *Client) doorway(name string) *doorway {
	d := c.names[name]
	if d != nil {
		return d
	}
	if d, c.spare = c.spare, nil; d == nil {
		d = new(doorway)
	}
	d.name = name
	c.names[name] = d
	return d
}

// tidy forgets d when nobody needs it any more. It is called with c.mu held.
func (c *Client) tidy(d *doorway) {
	if d.idle() && d.holds == nil && c.names[d.name] == d {
		delete(c.names, d.name)
		c.spare = d
	}
}

// want tells the holders of d that somebody of this client waits. It is
// called with the client's mutex held.
func (d *doorway) want() {
	for h := d.holds; h != nil; h = h.next {
		h.Wanted()
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
		h.Wanted()
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
	d.gate.leave(h.mode())
	c.tidy(d)
}
