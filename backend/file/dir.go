//go:build linux

package file

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/dlock-go/dlock/backend"
	"golang.org/x/sys/unix"
)

// A directory is where lock files are. It is held open, with a shared lock that
// keeps cleaners such as systemd-tmpfiles away, and files are opened relative to it:
// what takes the place of its path is noticed, and not used unseen.
type directory struct {
	path  string
	file  *os.File
	info  fs.FileInfo
	folds bool // names that differ in case alone are one
	users atomic.Int64
}

// openDirectory opens the directory at path. It creates it if it is missing, and
// refuses one in which others could put files, or whose file system keeps no locks. The
// caller uses it, until it leaves.
func openDirectory(path string) (*directory, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(path, 0o700); err == nil {
			info, err = os.Lstat(path)
		}
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		return nil, backend.Fail(backend.ErrAuth, err)
	case err != nil:
		return nil, backend.Fail(backend.ErrInvalidConfig, err)
	case !info.IsDir():
		return nil, unfit(path, "is not a directory")
	}
	fd, err := unix.Open(path, unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fail(err)
	}
	d := &directory{path: path, file: os.NewFile(uintptr(fd), path)}
	d.users.Store(1)
	if err := d.check(); err != nil {
		d.leave()
		return nil, err
	}
	return d, nil
}

// check looks at the directory itself, whatever is at its path by now.
func (d *directory) check() (err error) {
	if d.info, err = d.file.Stat(); err != nil {
		return fail(err)
	}
	switch {
	case !mine(d.info):
		return unfit(d.path, "belongs to another user")
	case d.info.Mode().Perm()&0o022 != 0:
		return unfit(d.path, "can be written by other users")
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(d.fd(), &fs); err != nil {
		return fail(err)
	}
	if name, ok := remote[uint32(fs.Type)]; ok {
		return unfit(d.path, "is on "+name+", whose locks are not those of one kernel")
	}
	d.keep()
	d.folds, err = d.foldsCase()
	return err
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

// keep locks the directory together with whoever else uses it. A cleaner that has it
// at the moment is soon through; another program is not waited for.
func (d *directory) keep() {
	for range 100 {
		if err := unix.Flock(d.fd(), unix.LOCK_SH|unix.LOCK_NB); err == nil || !errors.Is(err, unix.EWOULDBLOCK) {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// foldsCase reports whether a file is found under a name in other letters.
func (d *directory) foldsCase() (bool, error) {
	name := ".case-" + strings.ToLower(rand.Text())
	fd, err := unix.Openat(d.fd(), name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return false, fail(err)
	}
	_ = unix.Close(fd)
	defer func() { _ = unix.Unlinkat(d.fd(), name, 0) }()
	var st unix.Stat_t
	return unix.Fstatat(d.fd(), strings.ToUpper(name), &st, unix.AT_SYMLINK_NOFOLLOW) == nil, nil
}

func (d *directory) fd() int { return int(d.file.Fd()) }

// use adds a user, unless the last one has left.
func (d *directory) use() bool {
	for {
		n := d.users.Load()
		if n == 0 || d.users.CompareAndSwap(n, n+1) {
			return n > 0
		}
	}
}

// leave closes d when its last user does so.
func (d *directory) leave() {
	if d.users.Add(-1) == 0 {
		_ = d.file.Close()
	}
}

// current reports errReplaced if the path does not name this directory any more.
func (d *directory) current() error {
	info, err := os.Lstat(d.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errReplaced
	case err != nil:
		return fail(err)
	case !os.SameFile(info, d.info):
		return errReplaced
	}
	return nil
}

// fileName is that of the lock. Names that differ in case alone have files that
// differ in more where the file system takes no notice of case.
func (d *directory) fileName(name string) string {
	short := backend.ShortName(name, 200)
	if lower := strings.ToLower(short); d.folds && (lower != short || strings.Contains(short, "%")) {
		short = foldedName(name, lower)
	}
	return short + ".lock"
}

// absolute returns the path of the directory that o names, or of the user's
// default.
func (o *Options) absolute() (string, error) {
	if o == nil || o.Dir == "" {
		return defaultDir()
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return "", backend.Fail(backend.ErrInvalidConfig, err)
	}
	return dir, nil
}

// shared is where there is a directory for a user who has no home.
var shared = "/tmp"

// home is the home directory of the user this process acts for, as the user database
// says; empty if there is none. It does not depend on the environment, which differs
// between a login, cron, sudo and a service, whose locks would exclude nobody.
var home = func() string {
	u, err := user.LookupId(strconv.Itoa(os.Geteuid()))
	if err != nil || u.HomeDir == "/" || strings.HasPrefix(u.HomeDir, "/nonexistent") {
		return ""
	}
	return u.HomeDir
}

// defaultDir is in the user's state directory. Which one it is follows from the user
// alone: if it cannot be used that is an error, and no other takes its place.
func defaultDir() (string, error) {
	h := home()
	if h == "" { // others may have made a directory of that name before: it is refused then
		return filepath.Join(shared, "dlock-"+strconv.Itoa(os.Geteuid())), nil
	}
	if _, err := os.Stat(h); err != nil {
		return "", backend.Fail(backend.ErrInvalidConfig, fmt.Errorf("the home directory cannot be used, name a directory as in file:///var/lib/app/locks: %w", err))
	}
	return filepath.Join(h, ".local", "state", "dlock"), nil
}

func unfit(dir, problem string) error {
	return backend.Fail(backend.ErrInvalidConfig, fmt.Errorf("%s %s", dir, problem))
}

// mine reports whether the file belongs to the user this process acts for.
func mine(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}
