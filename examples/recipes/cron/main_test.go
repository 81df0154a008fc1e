package main

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/examples/recipes/internal/try"
)

// machine is one copy of the program, and counts the ticks at which it did not run the job.
type machine struct {
	locks             *dlock.Client
	held, unavailable atomic.Int32
}

func newMachine(t *testing.T, url string) *machine {
	m := &machine{}
	m.locks = try.Open(t, url, &dlock.Options{Hooks: dlock.Hooks{NotAcquired: func(_ context.Context, e dlock.NotAcquiredEvent) {
		switch {
		case errors.Is(e.Err, dlock.ErrHeld):
			m.held.Add(1)
		case errors.Is(e.Err, dlock.ErrUnavailable):
			m.unavailable.Add(1)
		}
	}}})
	return m
}

// start runs the program and returns what stops it.
func (m *machine) start(t *testing.T, job func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, m.locks, "@every 1s", job) }()
	return func() {
		t.Helper()
		cancel()
		if err := try.Receive(t, "the end of a machine", ended); err != nil {
			t.Error(err)
		}
	}
}

// A job that takes no time runs once, although both machines come to it again and again
// within the minimum hold, and its machine too.
func TestOneMachineRunsTheJob(t *testing.T) {
	t.Parallel()
	url, _ := try.Redis(t)
	var runs atomic.Int32
	job := func(context.Context) error { runs.Add(1); return nil }
	a, b := newMachine(t, url), newMachine(t, url)
	stopA := a.start(t, job)
	stopB := b.start(t, job)
	try.Await(t, "each machine finds the lock held", func() bool { return a.held.Load() >= 1 && b.held.Load() >= 1 })
	stopA()
	stopB()
	if n := runs.Load(); n != 1 {
		t.Errorf("the job ran %d times, want 1", n)
	}
}

// A lock that is taken away ends the context of the job.
func TestLostLockStopsTheJob(t *testing.T) {
	t.Parallel()
	url, _ := try.Redis(t)
	began, ended := make(chan struct{}), make(chan error, 1)
	a := newMachine(t, url)
	stop := a.start(t, func(ctx context.Context) error {
		close(began)
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return nil
	})
	defer stop()
	try.Receive(t, "the job begins", began)
	lock, err := a.locks.Inspect(t.Context(), "cron/report")
	if err != nil || len(lock.Holders) != 1 {
		t.Fatal(lock, err)
	}
	if err := try.Open(t, url, nil).Break(t.Context(), "cron/report", lock.Holders[0].Token); err != nil {
		t.Fatal(err)
	}
	if err := try.Receive(t, "the end of the job", ended); !errors.Is(err, dlock.ErrLost) {
		t.Errorf("got %v, want ErrLost", err)
	}
}

// Without the server no machine runs the job.
func TestNoServerNoJob(t *testing.T) {
	t.Parallel()
	url, redis := try.Redis(t)
	a := newMachine(t, url)
	if err := redis.Kill(); err != nil {
		t.Fatal(err)
	}
	var runs atomic.Int32
	stop := a.start(t, func(context.Context) error { runs.Add(1); return nil })
	try.Await(t, "a tick", func() bool { return a.unavailable.Load() >= 1 })
	stop()
	if runs.Load() != 0 {
		t.Error("the job ran without the lock")
	}
}
