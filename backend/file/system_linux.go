package file

import (
	"os"

	"golang.org/x/sys/unix"
)

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
