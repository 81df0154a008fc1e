package dlock

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// awaitTurn puts w into q until w is admitted or has a lease. The caller holds c.mu;
// awaitTurn returns without it. It fails if ctx or parent, which may be nil, ends
// first, if w is turned away, or if after FirstAnswer it is still not known who holds
// the lock. Answered says whether that is known.
func (c *Client) awaitTurn(ctx context.Context, q *queue, w *waiter, parent <-chan struct{}, o *queueObserver) (lease *Lease, answered bool, err error) {
	answered = w.answered
	q.enqueue(w)
	c.mu.Unlock()
	if o != nil {
		c.callWaiting(ctx, o, q, w)
	}
	if answered && ctx.Done() == nil && parent == nil { // costs half of a select
		<-w.ready
		return c.takeResult(w)
	}
	var silence <-chan time.Time
	if !answered {
		t := time.NewTimer(backend.FirstAnswer)
		defer t.Stop()
		silence = t.C
	}
	for {
		select {
		case <-w.ready:
			return c.takeResult(w)
		case <-ctx.Done():
			return c.withdraw(ctx, q, w, nil)
		case <-parent:
			return c.withdraw(ctx, q, w, errParentEnded)
		case <-silence:
			if !c.isAnswered(w) {
				return c.withdraw(ctx, q, w, backend.Fail(ErrUnavailable, backend.NoAnswer(backend.FirstAnswer)))
			}
			silence = nil
		}
	}
}

// withdraw removes w from q because of why, or because ctx is done. If w has got a
// lease or an error meanwhile, withdraw returns that.
func (c *Client) withdraw(ctx context.Context, q *queue, w *waiter, why error) (*Lease, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.granted || w.err != nil {
		<-w.ready
		if w.lease != nil || w.err != nil {
			return c.takeResult(w)
		}
	}
	if why == nil {
		why = backend.WaitEnded(ctx, w.answered)
	}
	q.withdraw(w)
	_, _, _ = c.takeResult(w)
	return nil, false, why
}

// isAnswered reports whether w knows that the lock is held, or waits no longer.
func (c *Client) isAnswered(w *waiter) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return w.answered || w.granted || w.err != nil
}

func (c *Client) newWaiter(mode backend.Mode, l *lock) *waiter {
	w, _ := c.waiters.Get().(*waiter)
	if w == nil {
		w = &waiter{ready: make(chan struct{}, 1)}
	}
	w.mode, w.lock, w.granted, w.tryOnly, w.answered = mode, l, false, false, true
	return w
}

// takeResult returns what w has got, and puts w back into the pool.
func (c *Client) takeResult(w *waiter) (lease *Lease, answered bool, err error) {
	lease, answered, err = w.lease, w.answered, w.err
	w.lease, w.err, w.lock = nil, nil, nil
	c.waiters.Put(w)
	return lease, answered, err
}
