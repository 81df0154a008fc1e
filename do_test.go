package dlock_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/dlock-go/dlock"
)

func TestDoOfAClosedClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, a, b := pair(t, dlock.Options{})
		err := dlock.Do(t.Context(), a.Mutex("x"), func(context.Context, *dlock.Lease) error {
			is(t, a.Close(t.Context()), nil)
			unlock(t, lock(t, b.Mutex("x")))
			return nil
		})
		is(t, err, dlock.ErrClosed)
	})
}

// What f lost was another lock.
func TestLeadReturnsTheLossOfAnotherLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, a, _ := pair(t, dlock.Options{})
		halfDone, terms := errors.New("half done"), 0
		err := dlock.Lead(t.Context(), a.Mutex("leader"), func(ctx context.Context, _ *dlock.Lease) error {
			if terms++; terms > 1 {
				return nil
			}
			return dlock.Do(ctx, a.Mutex("work"), func(ctx context.Context, _ *dlock.Lease) error {
				s.Evict("work")
				<-ctx.Done()
				return halfDone
			})
		})
		is(t, err, halfDone, dlock.ErrLost)
		if terms != 1 {
			t.Errorf("%d terms", terms)
		}
	})
}

// A function that does not return leaves no lock behind, whether it panics or ends its goroutine.
func TestDoUnlocksAfterAPanic(t *testing.T) {
	for name, end := range map[string]func(){"panic": func() { panic(errShutdown) }, "exit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, _, a, b := pair(t, dlock.Options{})
				var thrown any
				var lease *dlock.Lease
				done := make(chan struct{})
				go func() {
					defer close(done)
					defer func() { thrown = recover() }()
					_ = dlock.Do(t.Context(), a.Mutex("x"), func(_ context.Context, l *dlock.Lease) error {
						lease = l
						end()
						return nil
					})
				}()
				<-done
				if panics := name == "panic"; panics != (thrown == errShutdown) {
					t.Error(thrown)
				}
				is(t, lease.Err(), dlock.ErrUnlocked)
				free, err := b.Mutex("x").TryLock(t.Context())
				is(t, err, nil)
				unlock(t, free)
			})
		})
	}
}

// What f returns is not hidden by the end of its lease.
func TestDoReturnsBothErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, a, _ := pair(t, dlock.Options{})
		err := dlock.Do(t.Context(), a.Mutex("x"), func(ctx context.Context, _ *dlock.Lease) error {
			s.Evict("x")
			<-ctx.Done()
			return errShutdown
		})
		is(t, err, dlock.ErrLost, errShutdown)
	})
}
