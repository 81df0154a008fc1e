package file

import (
	"errors"
	"io"
	"os"

	"github.com/dlock-go/dlock/backend"
	"golang.org/x/sys/unix"
)

// This file, notify_linux.go and system_linux.go are all that depends on the system.
// Another system has to offer two kinds of locks on an open file, which do not see
// each other: one of the whole file, and one of any range of its bytes, whether the
// bytes exist or not. For both kinds:
//
//   - A lock is exclusive or shared. Shared locks of one range go together.
//   - A lock belongs to the open file: whoever opens the file twice excludes himself.
//     It ends when the file is closed, and when its process dies in whatever way.
//   - Asking for a lock never waits. It replaces what the open file has there, and
//     leaves that alone if it is refused, but a change of mode of the lock of the
//     whole file may have a moment without a lock.
//   - findLock says where others have locks and takes none.

// lockWhole locks the whole file. It reports false if another has it.
//
// It is the system call itself because libraries open a path of their own and
// hide the descriptor: the lock must be on the very file that was checked, and
// 10,000 holds must not cost 20,000 descriptors.
func lockWhole(f *os.File, mode backend.Mode) (bool, error) {
	how := unix.LOCK_EX
	if mode == backend.Shared {
		how = unix.LOCK_SH
	}
	err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, systemError(err)
}

// unlockWhole gives back what lockWhole took.
func unlockWhole(f *os.File) { _ = unix.Flock(int(f.Fd()), unix.LOCK_UN) }

// lockByte locks the byte at. It reports false if another has it.
func lockByte(f *os.File, mode backend.Mode, at int64) (bool, error) {
	return setRange(f, rangeType(mode), at)
}

// unlockByte gives back what lockByte took. It cannot fail on a file that is open.
func unlockByte(f *os.File, at int64) { _, _ = setRange(f, unix.F_UNLCK, at) }

func setRange(f *os.File, typ int16, at int64) (bool, error) {
	r := unix.Flock_t{Type: typ, Whence: io.SeekStart, Start: at, Len: 1}
	err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &r)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return false, nil
	}
	return err == nil, systemError(err)
}

// findLock returns where in the bytes from first to last another has a lock that keeps
// one of mode out: any such lock. Its length is 0 if there is none.
func findLock(f *os.File, mode backend.Mode, first, last int64) (at, length int64, err error) {
	if first > last {
		return 0, 0, nil
	}
	r := unix.Flock_t{Type: rangeType(mode), Whence: io.SeekStart, Start: first, Len: last - first + 1}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &r); err != nil || r.Type == unix.F_UNLCK {
		return 0, 0, systemError(err)
	}
	if r.Len == 0 { // to the end, wherever that is
		r.Len = lastPosition
	}
	return max(r.Start, first), r.Len, nil
}

func rangeType(mode backend.Mode) int16 {
	if mode == backend.Shared {
		return unix.F_RDLCK
	}
	return unix.F_WRLCK
}
