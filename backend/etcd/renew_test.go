package etcd_test

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock"
)

// TestWanted tells a holder of another client that waits, with a renewal that would
// be sent anyway.
func TestWanted(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]func(*dlock.RWMutex) dlock.Locker{
		"writer": func(m *dlock.RWMutex) dlock.Locker { return m },
		"reader": func(m *dlock.RWMutex) dlock.Locker { return m.RLocker() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			admin, p := raw(t, shared.Addr()), proxied(t, shared.Addr())
			c := open(t, keptTTL, p.Addr())
			lease, before := locked(t, of(c.RWMutex("a"))), p.Stats().Requests
			const renewal = 2 // a request for the lease and one for the key
			eventually(t, "the lease is renewed", func() bool { return p.Stats().Requests >= before+renewal })
			select {
			case <-lease.Wanted():
				t.Fatal("nobody waits")
			default:
			}
			waiter := start(t, timed(t), open(t, time.Minute, shared.Addr()).RWMutex("a").Lock)
			queued(t, admin, 2)
			within(t, "told", lease.Wanted())
			must(t, lease.Unlock(timed(t)))
			must(t, waiter.granted().Unlock(timed(t)))
		})
	}
}
