//go:build darwin || freebsd

package file

import (
	"os"

	"golang.org/x/sys/unix"
)

// remoteFileSystem returns the name of the file system that f is on, if its locks are
// not those of one kernel.
func remoteFileSystem(f *os.File) (name string, err error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return "", systemError(err)
	}
	if st.Flags&unix.MNT_LOCAL == 0 {
		return unix.ByteSliceToString(st.Fstypename[:]), nil
	}
	return "", nil
}
