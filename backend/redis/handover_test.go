package redis

import (
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
)

// TestHandOverIsNotRenewedLate waits for the first renewal of a lock that another client
// has handed over. The server keeps such a lock for a few seconds at first, so little of
// the TTL is left then, and nothing is late.
func TestHandOverIsNotRenewedLate(t *testing.T) {
	t.Parallel()
	const ttl = 6 * unconfirmed
	renewed := make(chan dlock.RenewedEvent, 10)
	var log warnings
	waiter := openClient(t, shared, &dlock.Options{TTL: ttl, Logger: log.logger(), Hooks: dlock.Hooks{
		Renewed: func(e dlock.RenewedEvent) { renewed <- e },
	}})
	holder := openClient(t, shared, &dlock.Options{TTL: ttl})
	first := must[*dlock.Lease](t)(holder.Mutex(t.Name()).Lock(within(t)))
	next := make(chan *dlock.Lease, 1)
	go func() { next <- must[*dlock.Lease](t)(waiter.Mutex(t.Name()).Lock(within(t))) }()
	eventually(t, "the other client waits", func() bool {
		lock := must[dlock.Snapshot](t)(holder.Inspect(within(t), t.Name()))
		return len(lock.Waiters) == 1
	})
	must[any](t)(nil, first.Unlock(within(t)))
	lease := <-next

	var e dlock.RenewedEvent
	select {
	case e = <-renewed:
	case <-time.After(limit):
		t.Fatal("not renewed")
	}
	if e.TTL > unconfirmed+time.Millisecond || e.Left <= 0 || e.Left > e.TTL {
		t.Errorf("%v of %v was left, want some of the %v that the server had granted", e.Left, e.TTL, unconfirmed)
	}
	must[any](t)(nil, lease.Unlock(within(t)))
	must[any](t)(nil, waiter.Close(within(t))) // what it logs is logged by then
	if text := log.String(); strings.Contains(text, "late") && e.Left > e.TTL/2 {
		t.Errorf("a renewal with %v of %v left was logged: %s", e.Left, e.TTL, text)
	}
}
