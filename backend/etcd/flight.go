package etcd

import (
	"context"
	"sync"

	"github.com/dlock-go/dlock/backend"
)

// A flight is something that is done once for all who ask for it meanwhile, and again for those
// who ask later. The zero value is ready to use.
type flight struct {
	mu  sync.Mutex
	run *flightRun // under way; nil: none
}

type flightRun struct {
	done chan struct{}
	err  error // set before done is closed
}

// do waits for what do does in the background, or until ctx is done. None of the contexts of
// those who wait ends it.
func (f *flight) do(ctx context.Context, j *backend.Janitor, do func(context.Context) error) error {
	f.mu.Lock()
	r := f.run
	if r == nil {
		r = &flightRun{done: make(chan struct{})}
		if !j.Go(func(ctx context.Context) { f.end(r, do(ctx)) }) {
			f.mu.Unlock()
			return backend.ErrClosed
		}
		f.run = r
	}
	f.mu.Unlock()
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return backend.WaitEnded(ctx, false)
	}
}

func (f *flight) end(r *flightRun, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.run, r.err = nil, err
	close(r.done)
}
