package gocronlock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/go-co-op/gocron/v2"
)

// ErrNotLeader says that this Elector does not lead. The error that IsLeader returns says
// why, if something is wrong.
var ErrNotLeader = errors.New("gocronlock: not the leader")

var errElectorClosed = errors.New("the elector is closed")

// An Elector is a gocron.Elector. It stands for election from NewElector to Close, and
// leads as long as it holds a lock. It may be shared by schedulers and is safe for
// concurrent use. Make it with NewElector.
//
// gocron does not show why a run is skipped: ask IsLeader, for example where the
// program's health is asked for.
type Elector struct {
	lease  atomic.Pointer[dlock.Lease] // of the present or the last term
	failed atomic.Pointer[error]       // why the last attempt to get the lock failed
	ctx    context.Context             // ends with Close
	cancel context.CancelCauseFunc
	done   chan struct{}
}

var _ gocron.Elector = (*Elector)(nil)

// NewElector returns an Elector among all that have the same lock name. The lock is one
// of client, made with o; client stays the caller's to close.
func NewElector(client *dlock.Client, name string, o ...dlock.Option) *Elector {
	e := &Elector{done: make(chan struct{})}
	e.ctx, e.cancel = context.WithCancelCause(context.Background())
	go e.stand(candidate{client.Mutex(name, o...), e})
	return e
}

// IsLeader implements gocron.Elector. It asks nobody and returns nil as long as this
// process may believe that it holds the lock; see dlock.Lease. A job that goes on for
// longer works with the context of Lease. If the time of a run falls into a change of
// leader, the run may happen on both or on neither, as clocks differ.
func (e *Elector) IsLeader(context.Context) error {
	lease := e.lease.Load()
	switch failed := e.failed.Load(); {
	case e.ctx.Err() != nil:
		return fmt.Errorf("%w: %w", ErrNotLeader, context.Cause(e.ctx))
	case lease.Err() == nil:
		return nil
	case failed != nil:
		return fmt.Errorf("%w: %w", ErrNotLeader, *failed)
	case lease != nil:
		return fmt.Errorf("%w: %w", ErrNotLeader, lease.Err())
	}
	return ErrNotLeader
}

// Lease returns the lease of the present or the last term, nil if there was none. A job
// that must not outlive the term works with its context; the context of a nil lease has
// ended.
func (e *Elector) Lease() *dlock.Lease { return e.lease.Load() }

// Close ends the Elector: it does not lead any more, and gives the lock back. If ctx is
// done before the server has confirmed that, Close returns its cause, and the rest goes
// on. Calls after the first wait for the same.
func (e *Elector) Close(ctx context.Context) error {
	e.cancel(errElectorClosed)
	select {
	case <-e.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// retryPause lies between attempts to get a lock that fail for more than a moment, for
// example because the server refuses the password.
const retryPause = 5 * time.Second

// stand has c stand for election until Close, or until there is no client any more.
func (e *Elector) stand(c candidate) {
	defer close(e.done)
	for e.ctx.Err() == nil {
		err := dlock.Lead(e.ctx, c, e.serve)
		if errors.Is(err, dlock.ErrClosed) {
			return
		}
		backend.Sleep(e.ctx, retryPause)
	}
}

// serve is one term.
func (e *Elector) serve(ctx context.Context, lease *dlock.Lease) error {
	e.lease.Store(lease)
	<-ctx.Done()
	return nil
}

// A candidate is the lock of an Elector. It notes why the lock cannot be had.
type candidate struct {
	dlock.Locker
	elector *Elector
}

// Lock is that of the lock. An attempt that goes on for longer than an unanswered one could
// has reached the server and waits for another leader: why the attempt before it failed is
// forgotten then.
func (c candidate) Lock(ctx context.Context) (*dlock.Lease, error) {
	before := c.elector.failed.Load()
	waiting := time.AfterFunc(backend.FirstAnswer+time.Second, func() { c.elector.failed.CompareAndSwap(before, nil) })
	lease, err := c.Locker.Lock(ctx)
	waiting.Stop()
	if err != nil {
		c.elector.failed.Store(&err)
		return nil, err
	}
	c.elector.failed.Store(nil)
	return lease, nil
}
