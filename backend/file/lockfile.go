//go:build linux

package file

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
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
	path string
	file *os.File
	info fs.FileInfo
}

// openLock opens the lock file at path. What is something else is ErrConflict
// and is not opened: that alone can have an effect on a pipe or a device.
func openLock(path string, flag int) (*lockFile, error) {
	info, err := os.Lstat(path)
	if err == nil && !info.Mode().IsRegular() {
		return nil, foreign(path, "not a regular file")
	}
	f, err := os.OpenFile(path, flag|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fail(err)
	}
	l := &lockFile{path: path, file: f}
	if err := l.check(); err != nil {
		f.Close()
		return nil, err
	}
	return l, nil
}

// check reports whether the file that was opened is a lock file of this user.
func (l *lockFile) check() (err error) {
	l.info, err = l.file.Stat()
	switch {
	case err != nil:
		return fail(err)
	case !l.info.Mode().IsRegular():
		return foreign(l.path, "not a regular file")
	case !mine(l.info):
		return foreign(l.path, "belongs to another user")
	}
	_, err = l.read()
	return err
}

// current reports errReplaced if the path does not name this file any more.
func (l *lockFile) current() error {
	info, err := os.Lstat(l.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errReplaced
	case err != nil:
		return fail(err)
	case !os.SameFile(info, l.info):
		return errReplaced
	}
	return nil
}

// signal wakes everybody who waits at the file: it is what they hear when
// somebody leaves.
func (l *lockFile) signal() {
	if f, err := os.OpenFile(l.path, os.O_WRONLY|unix.O_NOFOLLOW, 0); err == nil {
		f.Close()
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
}

// content is what a lock file says.
type content struct {
	token  uint64 // of the last hold
	passed int64  // the last ticket that was passed over
}

const (
	contentPrefix = "dlock 1 "
	contentFormat = contentPrefix + "%020d %020d\n"
	contentLength = len(contentPrefix) + 20 + 1 + 20 + 1
)

// read returns the file's content. That of a new file is zero.
func (l *lockFile) read() (content, error) {
	var c content
	var buf [contentLength + 1]byte
	n, err := l.file.ReadAt(buf[:], 0)
	switch {
	case err != nil && err != io.EOF:
		return c, fail(err)
	case n == 0:
		return c, nil
	}
	if n != contentLength || !c.parse(string(buf[:n])) {
		return c, foreign(l.path, "not a lock file")
	}
	return c, nil
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
