//go:build linux || darwin || freebsd

package file

import (
	"io/fs"
	"os"
	"syscall"
)

// fileID is a number that no other file of the file system has while f is open.
func fileID(_ *os.File, info fs.FileInfo) (uint64, error) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, errUnsupported
	}
	return uint64(st.Ino), nil
}
