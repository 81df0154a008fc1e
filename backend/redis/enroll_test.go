package redis

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/faultnet"
)

// TestSilentAfterItsFirstAnswer has a server say that the lock is held, and then
// nothing while the waiter subscribes: it had its first answer, so it waits on.
func TestSilentAfterItsFirstAnswer(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	p := proxied(t)
	holder := must[*dlock.Lease](t)(openClient(t, shared, nil).Mutex(t.Name()).Lock(ctx))
	waiter := openURL(t, "redis://"+p.Addr(), &dlock.Options{TTL: time.Minute})
	p.OnRequest(func(_ int, req []byte) {
		if bytes.Contains(bytes.ToLower(req), []byte("subscribe")) {
			p.Blackhole(faultnet.ToClient)
		}
	})
	done := make(chan error, 1)
	go func() {
		l, err := waiter.Mutex(t.Name()).Lock(ctx)
		if err == nil {
			err = l.Unlock(ctx)
		}
		done <- err
	}()
	select {
	case err := <-done:
		t.Fatalf("the wait is over: %v (held: %v)", err, errors.Is(err, dlock.ErrHeld))
	case <-time.After(backend.FirstAnswer + time.Second): // a first answer that never comes ends the wait before
	}
	p.OnRequest(nil)
	p.Restore(faultnet.ToClient)
	must[any](t)(nil, holder.Unlock(ctx))
	must[any](t)(nil, <-done)
}
