package dlock

import (
	"context"

	"github.com/dlock-go/dlock/backend"
)

// A Mutex is a lock of one name. It has no state of its own: any number of
// them, in any number of processes, are one lock. Make one with Client.Mutex;
// every call on a nil or zero Mutex fails.
type Mutex struct {
	l *lock
}

var _ Locker = (*Mutex)(nil)

// Lock waits until the lock is held or ctx is done; see Locker. It fails with
// ErrHeld and ctx's cause if ctx is done while the lock is held by another,
// and with ErrUnavailable if the server could not be asked.
func (m *Mutex) Lock(ctx context.Context) (*Lease, error) {
	return m.lock().acquire(ctx, request{op: "lock", mode: backend.Exclusive, wait: true})
}

// TryLock takes the lock if it is free and nobody waits for it. Otherwise it
// fails with ErrHeld.
func (m *Mutex) TryLock(ctx context.Context) (*Lease, error) {
	return m.lock().acquire(ctx, request{op: "trylock", mode: backend.Exclusive, wait: false})
}

// Held returns the live lease on this lock that ctx was made from, if there is
// one.
func (m *Mutex) Held(ctx context.Context) (*Lease, bool) {
	l := m.lock()
	if l.client == nil || ctx == nil {
		return nil, false
	}
	in := chainOf(ctx).find(l.client, l.fullName)
	return in, in != nil
}

// Name returns the name the lock was made with.
func (m *Mutex) Name() string { return m.lock().name }

func (m *Mutex) lock() *lock {
	if m == nil || m.l == nil {
		return &lock{err: backend.Fail(ErrInvalidConfig, errZeroMutex)}
	}
	return m.l
}

// An RWMutex is a lock of one name that readers can share. Everything said of
// Mutex holds for it too.
type RWMutex struct {
	Mutex
}

var _ RWLocker = (*RWMutex)(nil)

// Lock waits until the lock is held exclusively or ctx is done; see Mutex.Lock.
func (m *RWMutex) Lock(ctx context.Context) (*Lease, error) { return m.mutex().Lock(ctx) }

// TryLock is Mutex.TryLock.
func (m *RWMutex) TryLock(ctx context.Context) (*Lease, error) { return m.mutex().TryLock(ctx) }

// Held is Mutex.Held, for entries of either kind.
func (m *RWMutex) Held(ctx context.Context) (*Lease, bool) { return m.mutex().Held(ctx) }

// Name returns the name the lock was made with.
func (m *RWMutex) Name() string { return m.mutex().Name() }

// RLock is Lock for a reader; see RWLocker.
func (m *RWMutex) RLock(ctx context.Context) (*Lease, error) {
	return m.mutex().lock().acquire(ctx, request{op: "rlock", mode: backend.Shared, wait: true})
}

// TryRLock is TryLock for a reader.
func (m *RWMutex) TryRLock(ctx context.Context) (*Lease, error) {
	return m.mutex().lock().acquire(ctx, request{op: "tryrlock", mode: backend.Shared, wait: false})
}

// RLocker returns a Locker whose Lock and TryLock are RLock and TryRLock of m.
func (m *RWMutex) RLocker() Locker { return (*rlocker)(m) }

// mutex is the Mutex in m, nil in a nil one, where a promoted method would panic.
func (m *RWMutex) mutex() *Mutex {
	if m == nil {
		return nil
	}
	return &m.Mutex
}

type rlocker RWMutex

func (r *rlocker) Lock(ctx context.Context) (*Lease, error)    { return (*RWMutex)(r).RLock(ctx) }
func (r *rlocker) TryLock(ctx context.Context) (*Lease, error) { return (*RWMutex)(r).TryRLock(ctx) }
