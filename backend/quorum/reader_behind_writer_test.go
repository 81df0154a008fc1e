package quorum_test

import (
	"testing"
	"testing/synctest"
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

// A writer has unlocked, and its release is on the way to the front, where a reader waits. Another reader,
// which tries, has the lock beside that one, as it has where nobody waits.
func TestTryBesideAReaderThatWaits(t *testing.T) {
	for _, waits := range []bool{false, true} {
		ripe(t, 3, func(t *testing.T, s nodes) {
			writer, reader, other := s.open(t, nil), s.open(t, nil), s.open(t, nil)
			name := s.nameWithFront(2)
			for _, c := range []*client{writer, reader, other} {
				ok(t, dlock.Do(t.Context(), c.Mutex("warm"), nothing))
			}
			l := writer.lock(name)
			got := make(chan error, 1)
			if waits {
				go func() { got <- dlock.Do(t.Context(), reader.RWMutex(name).RLocker(), nothing) }()
			} else {
				got <- nil
			}
			synctest.Wait()
			writer.links[2].Cut()
			ok(t, l.Unlock(t.Context()))
			time.AfterFunc(50*time.Millisecond, writer.links[2].Heal)
			r, err := other.RWMutex(name).TryRLock(t.Context())
			if err != nil {
				t.Errorf("a reader waits: %v: %v", waits, err)
			} else {
				ok(t, r.Unlock(t.Context()))
			}
			ok(t, <-got)
		})
	}
}

// A reader has the lock without the node at which a writer waits, and hears of it with a renewal.
func TestReaderWithoutThePartWhereAWriterWaits(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		front, first, reader, writer := s.front("x"), s.open(t, nil), s.open(t, nil), s.open(t, nil)
		lock := func(c *client) *dlock.Lease {
			l, err := c.RWMutex("x").RLock(t.Context())
			ok(t, err)
			return l
		}
		one := lock(first)
		got := make(chan error)
		go func() { got <- dlock.Do(t.Context(), writer.Mutex("x"), nothing) }()
		synctest.Wait()
		reader.links[front].Cut()
		two := lock(reader)
		reader.heal()
		select {
		case <-two.Wanted():
		case <-time.After(ttl):
			t.Error("a writer waits, and the reader is not told")
		}
		first.unlock(one)
		reader.unlock(two)
		ok(t, <-got)
	})
}
