package file

import (
	"bufio"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/dlock-go/dlock/backend"

	"golang.org/x/sys/unix"
)

// errUnsupported is why there are no locks in files on this system.
var errUnsupported error

// isOwn reports whether the file belongs to the user this process acts for.
func isOwn(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}

// remoteFileSystem returns the name of the file system that f is on, if its locks are
// not those of one kernel.
func remoteFileSystem(f *os.File) (name string, err error) {
	var fs unix.Statfs_t
	err = unix.Fstatfs(int(f.Fd()), &fs)
	return remote[uint32(fs.Type)], systemError(err)
}

// remote are the file systems that are refused, by the type that statfs(2) tells.
var remote = map[uint32]string{
	unix.NFS_SUPER_MAGIC:   "NFS",
	unix.SMB_SUPER_MAGIC:   "SMB",
	unix.CIFS_SUPER_MAGIC:  "SMB",
	unix.SMB2_SUPER_MAGIC:  "SMB",
	unix.FUSE_SUPER_MAGIC:  "FUSE",
	unix.V9FS_MAGIC:        "9p",
	unix.CEPH_SUPER_MAGIC:  "Ceph",
	unix.AFS_SUPER_MAGIC:   "AFS",
	unix.AFS_FS_MAGIC:      "AFS",
	unix.CODA_SUPER_MAGIC:  "Coda",
	unix.OCFS2_SUPER_MAGIC: "OCFS2",
	0x0bd00bd0:             "Lustre",
	0x01161970:             "GFS2",
	0x786f4256:             "a VirtualBox folder",
}

// A wholeLock is a lock of a whole file, of whatever program.
type wholeLock struct {
	pid  int
	mode backend.Mode
}

// locksOf returns who has the lock of the whole file, as far as /proc/locks tells.
// It does not show those of other containers.
func locksOf(info fs.FileInfo) (all []wholeLock) {
	st, ok := info.Sys().(*syscall.Stat_t)
	f, err := os.Open("/proc/locks")
	if err != nil || !ok {
		return nil
	}
	defer f.Close()
	file := fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
	for lines := bufio.NewScanner(f); lines.Scan(); {
		// 1: FLOCK  ADVISORY  WRITE 4711 08:01:1234 0 EOF
		fields := strings.Fields(lines.Text())
		if len(fields) < 8 || fields[1] != "FLOCK" || fields[5] != file {
			continue
		}
		p := wholeLock{mode: backend.Shared}
		if fields[3] == "WRITE" {
			p.mode = backend.Exclusive
		}
		p.pid, _ = strconv.Atoi(fields[4])
		all = append(all, p)
	}
	return all
}
