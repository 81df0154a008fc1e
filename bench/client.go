package main

import (
	"context"

	"github.com/dlock-go/dlock/internal/workload"
)

// A client is a workload.Client made of functions.
type client struct {
	lock  func(name string) workload.Lock
	close func() error
}

func (c client) Lock(name string) workload.Lock { return c.lock(name) }
func (c client) Close() error                   { return c.close() }

// A handle is a workload.Lock made of functions.
type handle struct {
	lock, unlock func(ctx context.Context) error
}

func (h handle) Lock(ctx context.Context) error   { return h.lock(ctx) }
func (h handle) Unlock(ctx context.Context) error { return h.unlock(ctx) }

// broken is the handle of a lock that could not be made.
func broken(err error) workload.Lock {
	fail := func(context.Context) error { return err }
	return handle{fail, fail}
}
