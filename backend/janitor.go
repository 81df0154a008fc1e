package backend

import (
	"context"
	"sync"
	"time"
)

// A Janitor finishes in the background what a caller no longer waits for, such
// as the removal of a queue entry after its context has ended. Its zero value
// is ready to use. It may be used concurrently.
type Janitor struct {
	mu     sync.Mutex
	closed bool
	ctx    context.Context
	stop   context.CancelFunc
	jobs   sync.WaitGroup
}

// Go runs job in a goroutine of its own. The job must return when its context
// ends. Go reports false, and does nothing, after Close.
func (j *Janitor) Go(job func(context.Context)) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return false
	}
	if j.ctx == nil {
		j.ctx, j.stop = context.WithCancel(context.Background())
	}
	j.jobs.Go(func() { job(j.ctx) })
	return true
}

// Do runs job in a goroutine of its own, and again after each failure with
// growing pauses, until it returns nil or limit has passed. After Close it
// does nothing.
func (j *Janitor) Do(limit time.Duration, job func(context.Context) error) {
	j.Go(func(ctx context.Context) {
		ctx, cancel := Bound(ctx, limit)
		defer cancel()
		Retry(ctx, job)
	})
}

// Retry runs job, and again after each failure with growing pauses, until it
// returns nil or ctx ends.
func Retry(ctx context.Context, job func(context.Context) error) {
	_ = Poll(ctx, Backoff{}, nil, func(ctx context.Context) (bool, error) {
		return job(ctx) == nil, nil
	})
}

// unwinding is how long a job may take to notice that its context has ended.
const unwinding = 50 * time.Millisecond

// Close waits for the jobs under way until ctx is done, then ends them, and
// returns when they have ended. A job that goes on all the same, for what it has called
// does not return, is left behind 50 ms later. Close reports ctx's Cause if it had to
// end any.
func (j *Janitor) Close(ctx context.Context) error {
	j.mu.Lock()
	j.closed = true
	stop := j.stop
	j.mu.Unlock()
	if stop == nil {
		return nil
	}
	defer stop()

	idle := make(chan struct{})
	go func() {
		j.jobs.Wait()
		close(idle)
	}()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		stop()
		t := time.NewTimer(unwinding)
		defer t.Stop()
		select {
		case <-idle:
		case <-t.C:
		}
		return Cause(ctx)
	}
}
