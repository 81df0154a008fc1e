//go:build linux || darwin || freebsd

package file

import (
	"errors"
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"strings"
	"syscall"

	"github.com/dlock-go/dlock/backend"
	"golang.org/x/sys/unix"
)

// errUnsupported is why there are no locks in files on this system.
var errUnsupported error

// notRegular is what the system says of a path that is not a regular file.
var notRegular = []error{syscall.ELOOP, syscall.EISDIR, syscall.ENXIO}

// isOwn reports whether the file belongs to the user this process acts for.
func isOwn(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}

// isWritableByOthers reports whether other users may put files into a directory.
func isWritableByOthers(info fs.FileInfo) bool { return info.Mode().Perm()&0o022 != 0 }

// home is the home directory of the user this process acts for, as the user database
// says; empty if there is none. It does not depend on the environment, which differs
// between a login, cron, sudo and a service, whose locks would exclude nobody.
var home = func() string {
	u, err := user.LookupId(strconv.Itoa(os.Geteuid()))
	if err != nil || isNoHome(u.HomeDir) {
		return ""
	}
	return u.HomeDir
}

// isNoHome reports whether dir is what user databases say of a user who has no home.
func isNoHome(dir string) bool {
	return dir == "/" || dir == "/var/empty" || strings.HasPrefix(dir, "/nonexistent")
}

// remove deletes a file or an empty directory.
func (d *directory) remove(name string) error { return d.root.Remove(name) }

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

// fileID is a number that no other file of the file system has while f is open.
func fileID(_ *os.File, info fs.FileInfo) (uint64, error) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, errUnsupported
	}
	return uint64(st.Ino), nil
}
