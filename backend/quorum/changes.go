package quorum

import "sync"

// changes tell all who wait for the next of them.
type changes struct {
	mu   sync.Mutex
	next chan struct{} // closed at the next one; nil: nobody waits
}

// wait returns a channel that is closed at the next change. Whoever waits calls it before the look
// after which it waits.
func (c *changes) wait() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next == nil {
		c.next = make(chan struct{})
	}
	return c.next
}

func (c *changes) notify() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next != nil {
		close(c.next)
		c.next = nil
	}
}
