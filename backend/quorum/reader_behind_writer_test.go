package quorum_test

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock"
)

// A reader who does not wait is told that a writer waits with one round trip, and with another it gives
// back what the nodes have granted at which nobody waits.
func TestTryBesideReadersBehindAWriter(t *testing.T) {
	for _, trip := range []time.Duration{1, 10, 30, 100} {
		trip *= time.Millisecond
		ripe(t, 3, func(t *testing.T, s nodes) {
			open := func() *dlock.Client { return s.unsteady(t, [3]time.Duration{trip, trip, trip}) }
			reader, writer, other := open(), open(), open()
			l, err := reader.RWMutex("x").RLock(t.Context())
			ok(t, err)
			got := make(chan error)
			go func() { got <- dlock.Do(t.Context(), writer.Mutex("x"), nothing) }()
			time.Sleep(time.Second)
			began := time.Now()
			_, err = other.RWMutex("x").TryRLock(t.Context())
			is(t, err, dlock.ErrHeld)
			if n := float64(time.Since(began)) / float64(trip); n > 2.5 {
				t.Errorf("nodes at %v: a reader is refused after %.1f round trips", trip, n)
			}
			ok(t, l.Unlock(t.Context()))
			ok(t, <-got)
		})
	}
}
