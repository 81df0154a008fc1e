//go:build linux || darwin || freebsd

package file

import (
	"errors"
	"os"

	"github.com/dlock-go/dlock/backend"
	"golang.org/x/sys/unix"
)

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
