// Package certmagiclock has CertMagic take its locks from package dlock, and keep all else
// where it is:
//
//	certmagic.Default.Storage = certmagiclock.New(certmagic.Default.Storage, client)
//
// Machines that share a storage then ask the authority once for a certificate, and one
// that dies or is cut off keeps the others waiting for no longer than the TTL of its lock.
package certmagiclock

import (
	"context"
	"errors"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/dlock-go/dlock"
)

// A Storage is a certmagic.Storage with locks of package dlock. CertMagic's own names of
// locks, such as issue_cert_example.com, are their names: where several storages use one
// lock server, each needs a client with a prefix of its own.
type Storage struct {
	certmagic.Storage
	locks *dlock.NamedLocks
}

var (
	_ certmagic.Storage          = (*Storage)(nil)
	_ certmagic.TryLocker        = (*Storage)(nil)
	_ certmagic.LockLeaseRenewer = (*Storage)(nil)
)

// New returns storage with locks of client instead of its own. All processes that share
// the storage must use locks on the same server. Every lock is made with o. Client stays
// the caller's to close, after CertMagic has ended.
func New(storage certmagic.Storage, client *dlock.Client, o ...dlock.Option) *Storage {
	return &Storage{storage, client.NamedLocks(o...)}
}

// Lock waits until the lock of that name is held or ctx is done. It fails with
// dlock.ErrUnavailable if the server does not answer, and with dlock.ErrHeld if a caller
// here has lost the lock and not called Unlock yet.
func (s *Storage) Lock(ctx context.Context, name string) error {
	_, err := s.locks.Lock(ctx, name)
	return err
}

// TryLock takes the lock of that name if it is free, and reports whether it was.
func (s *Storage) TryLock(ctx context.Context, name string) (bool, error) {
	_, err := s.locks.TryLock(ctx, name)
	if errors.Is(err, dlock.ErrHeld) {
		return false, nil
	}
	return err == nil, err
}

// Unlock gives the lock of that name back. It fails with dlock.ErrLost, which CertMagic
// logs, if the lock has been lost: another machine may have done the same work.
func (s *Storage) Unlock(ctx context.Context, name string) error {
	return s.locks.Unlock(ctx, name)
}

// RenewLockLease sees to it that the lock is still held. CertMagic calls it before each
// attempt to get a certificate that it repeats on failure, as ManageAsync does; not where
// it makes one attempt only, as ManageSync does. Locks are renewed anyway: the duration is
// not needed. One that has been lost is waited for anew; CertMagic then looks whether
// another machine has got the certificate meanwhile.
func (s *Storage) RenewLockLease(ctx context.Context, name string, _ time.Duration) error {
	_, err := s.locks.Relock(ctx, name)
	return err
}
