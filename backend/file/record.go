//go:build linux

package file

import (
	"errors"
	"io"
	"math"
	"os"

	"github.com/dlock-go/dlock/backend"
	"golang.org/x/sys/unix"
)

// The bytes of a lock file that record locks are taken on. They need not
// exist.
const (
	heldByte    = 0
	entryByte   = 1
	firstTicket = 2
	lastTicket  = math.MaxInt64 - 1
)

// recordType is the kind of record lock that excludes the same others as a
// hold of mode does.
func recordType(mode backend.Mode) int16 {
	if mode == backend.Shared {
		return unix.F_RDLCK
	}
	return unix.F_WRLCK
}

// lockRecord locks the byte at in place of whatever lock f has there. It
// reports false if another has it.
func lockRecord(f *os.File, typ int16, at int64) (bool, error) {
	r := unix.Flock_t{Type: typ, Whence: io.SeekStart, Start: at, Len: 1}
	err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &r)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return false, nil
	}
	return err == nil, fail(err)
}

// unlockRecord gives back what f has of the byte at. It cannot fail on a file
// that is open.
func unlockRecord(f *os.File, at int64) {
	if at >= 0 {
		_, _ = lockRecord(f, unix.F_UNLCK, at)
	}
}

// findLast returns the byte from first on that another has locked, and the number of
// bytes locked with it; no bytes if nothing is locked there.
func findLast(f *os.File, first int64) (at, length int64, err error) {
	r := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: first, Len: lastTicket - first + 1}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &r); err != nil || r.Type == unix.F_UNLCK {
		return 0, 0, fail(err)
	}
	if r.Len == 0 { // to the end, wherever that is
		r.Len = lastTicket
	}
	return r.Start, r.Len, nil
}

// findRecord returns a byte from first to last on which another has a lock
// that typ does not go together with: any of them.
func findRecord(f *os.File, typ int16, first, last int64) (at int64, found bool, err error) {
	if first > last {
		return 0, false, nil
	}
	r := unix.Flock_t{Type: typ, Whence: io.SeekStart, Start: first, Len: last - first + 1}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &r); err != nil {
		return 0, false, fail(err)
	}
	return max(r.Start, first), r.Type != unix.F_UNLCK, nil
}
