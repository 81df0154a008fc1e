// Package workload is the work by which ways to lock are compared. It is
// written once, for dlock bench, for the suite's benchmarks and for the
// comparison with other libraries.
//
// A Contender is measured by [OwnKeys] with a lock for every goroutine, by
// [OneKey] with one lock for all, by [Held] with locks that are kept, and by
// [Waiting] with a queue in which nothing moves.
package workload

import (
	"context"
	"errors"
	"sync"
	"time"
)

// A Contender is one way to lock.
type Contender struct {
	// Name is what tables call it.
	Name string

	// Open returns a client of its own, as another process would have.
	Open func(ctx context.Context, o Options) (Client, error)

	// Meter tells what the server has done. It is nil where there is no
	// server, or none that can be asked.
	Meter Meter
}

// Options are what a workload wants of a client.
type Options struct {
	// TTL is the lease of its locks.
	TTL time.Duration

	// Keep says that locks are held for longer than the TTL. A contender that
	// does not renew by itself then does what its users do.
	Keep bool
}

// A Client is one party. Its methods are safe for concurrent use.
type Client interface {
	// Lock returns a handle on the lock of that name.
	Lock(name string) Lock

	// Close ends the client when all of its locks are unlocked.
	Close() error
}

// A Lock is a handle for one goroutine. It may have a method Err() error that
// says whether a lock that is held has been lost.
type Lock interface {
	// Lock waits until the lock is held. A contender may be unable to end the
	// wait with ctx.
	Lock(ctx context.Context) error

	// Unlock gives it back. An error means that it may have been lost.
	Unlock(ctx context.Context) error
}

// A Meter reads what a server has counted since it started. Reading does not
// count.
type Meter interface {
	Read(ctx context.Context) (Reading, error)
}

// A Reading is what a server has done so far.
type Reading struct {
	Requests    int64         // of clients, as they sent them
	CPU         time.Duration // of all of its processes
	Connections int           // open now
}

// parties opens n clients of c. close closes those that were opened.
func parties(ctx context.Context, c Contender, o Options, n int) (all []Client, close func() error, err error) {
	close = func() error {
		var errs []error
		for _, client := range all {
			errs = append(errs, client.Close())
		}
		return errors.Join(errs...)
	}
	for range n {
		client, err := c.Open(ctx, o)
		if err != nil {
			return nil, nil, errors.Join(err, close())
		}
		all = append(all, client)
	}
	return all, close, nil
}

// each calls f for 0 to n-1, with so many calls at a time, and returns the
// first error of each caller.
func each(n, atATime int, f func(i int) error) error {
	var all sync.WaitGroup
	errs := make([]error, atATime)
	for worker := range atATime {
		all.Go(func() {
			for i := worker; i < n && errs[worker] == nil; i += atATime {
				errs[worker] = f(i)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// opener is how many locks are taken or given back at a time where that is not
// what is measured.
const opener = 64
