package dlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
)

// A process may have two clients. The lease of one, in a context, is a stranger's to the other: that enters
// nothing by it, and enters its own lease again beyond it.
func TestLeaseOfAnotherClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, a, b := pair(t, dlock.Options{})
		for name, take := range map[string]func(*dlock.RWMutex) (*dlock.Lease, error){
			"to write": func(m *dlock.RWMutex) (*dlock.Lease, error) { return m.Lock(t.Context()) },
			"to read":  func(m *dlock.RWMutex) (*dlock.Lease, error) { return m.RLock(t.Context()) },
		} {
			outer, err := take(a.RWMutex(name))
			is(t, err, nil)
			under := outer.Context(t.Context())
			if _, held := b.RWMutex(name).Held(under); held {
				t.Errorf("%s: it is held by another client's lease", name)
			}
			_, err = b.RWMutex(name).TryLock(under)
			is(t, err, dlock.ErrHeld)
			waiting, cancel := context.WithTimeout(under, time.Second)
			_, err = b.RWMutex(name).Lock(waiting)
			is(t, err, context.DeadlineExceeded)
			cancel()
			other, err := b.Mutex("other").Lock(under)
			is(t, err, nil)
			again, err := a.RWMutex(name).TryRLock(other.Context(under))
			is(t, err, nil)
			unlock(t, again)
			unlock(t, other)
			unlock(t, outer)
			_, err = b.RWMutex(name).Lock(under)
			is(t, err, dlock.ErrUnlocked)
		}
	})
}
