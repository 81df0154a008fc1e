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
	ctx      context.Context // ends with Close
	stop     context.CancelCauseFunc
	underWay sync.WaitGroup
}

// Begin returns ctx for one call: it also ends when Close is called, with ErrClosed as its
// cause. The caller calls end when the call is over. After Close, Begin is ErrClosed.
func (c *Calls) Begin(ctx context.Context) (bound context.Context, end func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, nil, ErrClosed
	}
	if c.ctx == nil {
		c.ctx, c.stop = context.WithCancelCause(context.Background())
	}
	c.underWay.Add(1)
	bound, cancel := context.WithCancelCause(ctx)
	unbind := context.AfterFunc(c.ctx, func() { cancel(ErrClosed) })
	return bound, func() {
		unbind()
		cancel(nil)
		c.underWay.Done()
	}, nil
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
	if c.stop != nil {
		c.stop(ErrClosed)
	}
	c.mu.Unlock()
	c.underWay.Wait()
	return true
}
