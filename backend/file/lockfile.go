//go:build linux

package file

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/dlock-go/dlock/backend"
	"golang.org/x/sys/unix"
)

// errReplaced says that the path names another file by now: whatever was
// locked on this one is worth nothing.
var errReplaced = errors.New("lock file was replaced")

// A lockFile is an open lock file.
type lockFile struct {
	dir  *directory
	name string
	file *os.File
	info fs.FileInfo
}

// open opens a lock file. What is something else is ErrConflict and is not opened:
// that alone can have an effect on a pipe or a device.
func (d *directory) open(name string, flag int) (*lockFile, error) {
	l := &lockFile{dir: d, name: name}
	var st unix.Stat_t
	err := unix.Fstatat(d.fd(), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, foreign(l.path(), "not a regular file")
	}
	fd, err := unix.Openat(d.fd(), name, flag|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fail(&fs.PathError{Op: "open", Path: l.path(), Err: err})
	}
	l.file = os.NewFile(uintptr(fd), l.path())
	d.use() // as the caller does
	if err := l.check(); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func (l *lockFile) path() string { return filepath.Join(l.dir.path, l.name) }

// check reports whether the file that was opened is a lock file of this user.
func (l *lockFile) check() (err error) {
	l.info, err = l.file.Stat()
	switch {
	case err != nil:
		return fail(err)
	case !l.info.Mode().IsRegular():
		return foreign(l.path(), "not a regular file")
	case !mine(l.info):
		return foreign(l.path(), "belongs to another user")
	}
	_, err = l.read()
	return err
}

// current reports errReplaced if the path does not lead to this file any more.
func (l *lockFile) current() error {
	if err := l.dir.current(); err != nil {
		return err
	}
	var st unix.Stat_t
	err := unix.Fstatat(l.dir.fd(), l.name, &st, unix.AT_SYMLINK_NOFOLLOW)
	switch own := l.info.Sys().(*syscall.Stat_t); {
	case errors.Is(err, fs.ErrNotExist):
		return errReplaced
	case err != nil:
		return fail(err)
	case st.Ino != own.Ino || st.Dev != own.Dev:
		return errReplaced
	}
	return nil
}

// signal wakes everybody who waits at the file: it is what they hear when
// somebody leaves.
func (l *lockFile) signal() {
	if fd, err := unix.Openat(l.dir.fd(), l.name, unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0); err == nil {
		_ = unix.Close(fd)
	}
}

// close ends every lock on the file. It unlocks the bytes that others look for
// by itself before: a process that is being forked off may have a copy of the
// descriptor for a moment, and those who hear of the close look at once.
func (l *lockFile) close(bytes ...int64) {
	for _, at := range bytes {
		unlockRecord(l.file, at)
	}
	l.file.Close()
	l.dir.leave()
}

// content is what a lock file says.
type content struct {
	token  uint64 // no hold has had a greater one
	passed int64  // the last ticket that was passed over
}

const (
	contentPrefix = "dlock 1 "
	contentFormat = contentPrefix + "%020d %020d\n"
	contentLength = len(contentPrefix) + 20 + 1 + 20 + 1
)

// read returns the file's content. That of a new file is zero, and so is that of one
// of which a crash of the machine has left zeros, or the beginning: tokens go on by
// the clock.
func (l *lockFile) read() (content, error) {
	var c content
	var buf [contentLength + 1]byte
	n, err := l.file.ReadAt(buf[:], 0)
	if err != nil && err != io.EOF {
		return c, fail(err)
	}
	text := buf[:n]
	if n <= contentLength && len(bytes.Trim(text, "\x00")) == 0 {
		return c, nil
	}
	if n < contentLength && isBeginning(string(text)) {
		return c, nil
	}
	if n != contentLength || !c.parse(string(text)) {
		return c, foreign(l.path(), "not a lock file")
	}
	return c, nil
}

// isBeginning reports whether s is the beginning of a lock file.
func isBeginning(s string) bool {
	if len(s) < len(contentPrefix) {
		return strings.HasPrefix(contentPrefix, s)
	}
	digits, ok := strings.CutPrefix(s, contentPrefix)
	return ok && strings.Trim(digits, "0123456789 ") == ""
}

func (c *content) parse(s string) bool {
	rest, ok := strings.CutPrefix(s, contentPrefix)
	token, passed, ok2 := strings.Cut(strings.TrimSuffix(rest, "\n"), " ")
	var err1, err2 error
	c.token, err1 = strconv.ParseUint(token, 10, 64)
	c.passed, err2 = strconv.ParseInt(passed, 10, 64)
	return ok && ok2 && err1 == nil && err2 == nil
}

// write replaces the content, in one call, so that nobody who is killed leaves
// half of it.
func (l *lockFile) write(c content) error {
	_, err := l.file.WriteAt(fmt.Appendf(nil, contentFormat, c.token, c.passed), 0)
	return fail(err)
}

// foldedName is short for name, in lower case. Its end tells it from other names that
// are the same but for case.
func foldedName(name, lower string) string {
	sum := sha256.Sum256([]byte(name))
	digest := hex.EncodeToString(sum[:16])
	return lower[:min(len(lower), 200-len(digest)-1)] + "~" + digest
}

func foreign(path, what string) error {
	return backend.Fail(backend.ErrConflict, fmt.Errorf("%s: %s", path, what))
}

// fail tells what kind of failure an error of the system is.
func fail(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrPermission):
		return backend.Fail(backend.ErrAuth, err)
	case errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ENXIO):
		return backend.Fail(backend.ErrConflict, err)
	}
	return backend.Fail(backend.ErrUnavailable, err)
}
