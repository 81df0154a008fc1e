package dlock

import (
	"context"
	"errors"
	"sync"

	"github.com/dlock-go/dlock/backend"
)

// NamedLocks are the locks of a client for programs that lock in one call and unlock in
// another, with nothing but the name in common, as the interfaces of other libraries ask
// for. It keeps the lease from one call to the other. Make it with Client.NamedLocks. It
// is safe for concurrent use.
//
// From Lock to Unlock a name belongs to one caller, also if its lease ends meanwhile:
// until that caller has unlocked by name, the same NamedLocks gives the name to nobody
// else. So Unlock never ends the lease of another caller.
type NamedLocks struct {
	client   *Client
	settings *settings

	mu   sync.Mutex
	kept map[string]*Lease // of callers of Lock that have not called Unlock yet
}

// NamedLocks returns the locks of the client by name. It never fails: a bad option is
// the error of every call. The locks are those of Mutex, but without re-entry: an Unlock
// by name could not say which entry it ends.
func (c *Client) NamedLocks(o ...Option) *NamedLocks {
	o = append(o[:len(o):len(o)], WithoutReentry())
	return &NamedLocks{client: c, settings: c.settings(o), kept: make(map[string]*Lease)}
}

// Lock waits until the lock of that name is held or ctx is done; see Locker. It fails
// with ErrHeld if the caller that held it here has lost it and not unlocked it yet: at
// once, or if it waited already, as soon as it would have got the lock.
func (n *NamedLocks) Lock(ctx context.Context, name string) (*Lease, error) {
	return n.acquire(ctx, "lock", name, (*Mutex).Lock)
}

// TryLock is Lock, but fails with ErrHeld rather than wait for the lock.
func (n *NamedLocks) TryLock(ctx context.Context, name string) (*Lease, error) {
	return n.acquire(ctx, "trylock", name, (*Mutex).TryLock)
}

// Relock locks a name anew, as Lock does, if its lock has been lost since Lock. Otherwise
// it asks nobody, and returns the lease that there is. It is for the caller that Lock has
// given the name to, who has to look then at what others may have done meanwhile; a new
// lease has a greater Token. ctx must not come from the lease that has ended. After an
// error the lock is lost as before, and Relock may be called again. A name that is not
// locked here is ErrNotHeld.
func (n *NamedLocks) Relock(ctx context.Context, name string) (*Lease, error) {
	kept := n.Lease(name)
	if kept == nil {
		return nil, newError("lock", name, errNotKept)
	}
	if kept.Err() == nil {
		return kept, nil
	}
	lease, err := n.mutex(name).Lock(ctx)
	if err != nil {
		return nil, err
	}
	if !n.swap(name, kept, lease) {
		lease.discard(ctx)
		return nil, newError("lock", name, errNotKept)
	}
	return lease, nil
}

// Unlock gives the lock of that name back, as Lease.Unlock does and with its errors:
// ErrLost if the lock has been lost since Lock. The name is free here in any case. A name
// that is not locked here is ErrNotHeld.
func (n *NamedLocks) Unlock(ctx context.Context, name string) error {
	if n == nil {
		return newError("unlock", name, errNotKept)
	}
	n.mu.Lock()
	lease := n.kept[name]
	delete(n.kept, name)
	n.mu.Unlock()
	if lease == nil {
		return newError("unlock", name, errNotKept)
	}
	return lease.Unlock(ctx)
}

// Lease returns the lease of a name from Lock to Unlock, also if the lock has been lost.
// For other names it returns nil, which is a lease that has ended.
func (n *NamedLocks) Lease(name string) *Lease {
	if n == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.kept[name]
}

func (n *NamedLocks) mutex(name string) *Mutex {
	if n == nil {
		return nil
	}
	return &Mutex{n.client.newLock(name, n.settings)}
}

func (n *NamedLocks) acquire(ctx context.Context, op, name string, lock func(*Mutex, context.Context) (*Lease, error)) (*Lease, error) {
	if n.isEnded(name) {
		return nil, newError(op, name, errNotUnlocked)
	}
	lease, err := lock(n.mutex(name), ctx)
	if err != nil {
		return nil, err
	}
	if !n.swap(name, nil, lease) {
		lease.discard(ctx)
		return nil, newError(op, name, errNotUnlocked)
	}
	return lease, nil
}

// isEnded reports whether the name belongs to a caller whose lease has ended, other than
// with the client.
func (n *NamedLocks) isEnded(name string) bool {
	kept := n.Lease(name)
	return kept != nil && kept.Err() != nil && !errors.Is(kept.Err(), ErrClosed)
}

// swap replaces the lease that is kept for a name, nil if there is none. It reports
// false if that is another one by now.
func (n *NamedLocks) swap(name string, from, to *Lease) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.kept[name] != from {
		return false
	}
	n.kept[name] = to
	return true
}

var (
	errNotKept     = backend.Fail(ErrNotHeld, errors.New("no lock of that name is held here"))
	errNotUnlocked = backend.Fail(ErrHeld, errors.New("whoever had it here has not unlocked it by name yet"))
)
