package backend

import (
	"context"
	"sync"
)

// Calls are the calls of a backend that its Close ends and waits for, such as those of
// Acquire. The zero value is ready to use. It may be used concurrently.
type Calls struct {
	mu       sync.Mutex
	closed   bool
	underWay map[context.Context]context.CancelCauseFunc // what Begin has returned for each
	all      sync.WaitGroup
}

// Begin returns ctx for one call: it also ends when Close is called, with a
// cause that is ErrClosed. The caller calls end when the call is over. After Close, Begin is ErrClosed.
func (c *Calls) Begin(ctx context.Context) (bound context.Context, end func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, nil, ErrClosed
	}
	if c.underWay == nil {
		c.underWay = make(map[context.Context]context.CancelCauseFunc)
	}
	bound, cancel := context.WithCancelCause(ctx)
	c.underWay[bound] = cancel
	c.all.Add(1)
	return bound, func() { c.end(bound) }, nil
}

func (c *Calls) end(bound context.Context) {
	c.mu.Lock()
	cancel := c.underWay[bound]
	delete(c.underWay, bound)
	c.mu.Unlock()
	cancel(nil)
	c.all.Done()
}

// Err is ErrClosed after Close, and nil before.
func (c *Calls) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	return nil
}

// Close ends the calls under way, has no other begin, and waits for those. It reports
// false, and does nothing, if it was called before.
func (c *Calls) Close() bool {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return false
	}
	c.closed = true
	for _, cancel := range c.underWay {
		cancel(closing{})
	}
	c.mu.Unlock()
	c.all.Wait()
	return true
}
