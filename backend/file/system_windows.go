package file

import (
	"errors"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"syscall"

	"github.com/dlock-go/dlock/backend"
	"golang.org/x/sys/windows"
)

// errUnsupported is why there are no locks in files on this system.
var errUnsupported error

// notRegular is what the system says of a path that is not a regular file.
var notRegular = []error{syscall.ELOOP, syscall.EISDIR}

// Who may write to a file is a matter of access lists here. A directory below the
// user's profile, where the default one is, is the user's own.
func isOwn(fs.FileInfo) bool              { return true }
func isWritableByOthers(fs.FileInfo) bool { return false }

// home is the profile directory of the user this process acts for, empty if there is none.
var home = func() string {
	u, err := user.Current()
	if err != nil {
		return ""
	}
	return u.HomeDir
}

// remove deletes a file or an empty directory. Wine before version 9 cannot delete below
// an open directory.
func (d *directory) remove(name string) error {
	err := d.root.Remove(name)
	if errors.Is(err, windows.ERROR_INVALID_FUNCTION) {
		err = os.Remove(filepath.Join(d.root.Name(), name))
	}
	return err
}

// remoteFileSystem returns the name of the file system that f is on, if its locks are
// not those of one kernel.
func remoteFileSystem(f *os.File) (name string, err error) {
	path, err := filepath.Abs(f.Name())
	if err != nil {
		return "", systemError(err)
	}
	root, err := windows.UTF16PtrFromString(filepath.VolumeName(path) + `\`)
	if err != nil {
		return "", systemError(err)
	}
	if windows.GetDriveType(root) == windows.DRIVE_REMOTE {
		return "a network drive", nil
	}
	return "", nil
}

// The byte that is locked is far behind the end of a file: nobody can read bytes that
// another has locked.
const lockOffset = 1 << 30 // times 2^32

// lockWhole locks the whole file. It reports false if another has it.
func lockWhole(f *os.File, mode backend.Mode) (bool, error) {
	unlockWhole(f) // a lock is not replaced: the file would exclude itself
	flags := uint32(windows.LOCKFILE_FAIL_IMMEDIATELY)
	if mode == backend.Exclusive {
		flags |= windows.LOCKFILE_EXCLUSIVE_LOCK
	}
	err := windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, &windows.Overlapped{OffsetHigh: lockOffset})
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return false, nil
	}
	return err == nil, systemError(err)
}

// unlockWhole gives back what lockWhole took.
func unlockWhole(f *os.File) {
	_ = windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, &windows.Overlapped{OffsetHigh: lockOffset})
}

// fileID is a number that no other file of the volume has while f is open.
func fileID(f *os.File, _ fs.FileInfo) (uint64, error) {
	var info windows.ByHandleFileInformation
	if err := windows.GetFileInformationByHandle(windows.Handle(f.Fd()), &info); err != nil {
		return 0, systemError(err)
	}
	return uint64(info.FileIndexHigh)<<32 | uint64(info.FileIndexLow), nil
}
