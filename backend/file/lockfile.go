package file

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/dlock-go/dlock/backend"
)

// The bytes of a lock file that are locked. They need not exist.
const (
	heldByte      = 0 // by whoever holds the lock
	joinByte      = 1 // for a moment, by a reader that joins the others
	firstPosition = 2 // by waiters, each at the time in ns at which it has queued
	lastPosition  = math.MaxInt64 - 1
)

// A lockFile is an open lock file.
type lockFile struct {
	dir  *directory
	name string
	file *os.File
	info fs.FileInfo
	positions
}

// open opens a lock file. What is something else is ErrConflict and is not opened:
// that alone can have an effect on a pipe or a device.
func (d *directory) open(name string, flag int) (*lockFile, error) {
	l := &lockFile{dir: d, name: name}
	if info, err := d.root.Lstat(name); err == nil && !info.Mode().IsRegular() {
		return nil, notALockFile(l.path(), "not a regular file")
	}
	f, err := d.root.OpenFile(name, flag, 0o600)
	if err != nil {
		return nil, systemError(err)
	}
	l.file = f
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
		return systemError(err)
	case !l.info.Mode().IsRegular():
		return notALockFile(l.path(), "not a regular file")
	case !isOwn(l.info):
		return notALockFile(l.path(), "belongs to another user")
	}
	_, err = l.read()
	return err
}

// checkCurrent reports errReplaced if the path does not lead to this file any more.
func (l *lockFile) checkCurrent() error {
	if err := l.dir.checkCurrent(); err != nil {
		return err
	}
	info, err := l.dir.root.Lstat(l.name)
	if err == nil && !os.SameFile(info, l.info) {
		err = errReplaced
	}
	return replacedIfMissing(err)
}

// isHeld reports whether the lock is held in a way that keeps mode out. It
// disturbs nobody.
func (l *lockFile) isHeld(mode backend.Mode) (bool, error) {
	_, length, err := findLock(l, mode, heldByte, heldByte)
	return length > 0, err
}

// isBusy reports whether a newcomer has to wait: for a holder, or behind a waiter. It
// disturbs nobody.
func (l *lockFile) isBusy(mode backend.Mode) (bool, error) {
	if held, err := l.isHeld(mode); held || err != nil {
		return held, err
	}
	c, err := l.read()
	if err != nil {
		return false, err
	}
	_, length, err := findLock(l, mode, c.firstInQueue(), lastPosition)
	return length > 0, err
}

// isBusy is isBusy of the lock file of that name. One that is not there is free.
func (d *directory) isBusy(name string, mode backend.Mode) (bool, error) {
	l, err := d.open(name, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer l.close()
	return l.isBusy(mode)
}

// wakeWaiters wakes everybody who waits at the file: a change of its attributes is what
// they hear. It opens nothing, which a process with many files may not do.
func (l *lockFile) wakeWaiters() { _ = l.file.Chmod(l.info.Mode().Perm()) }

// close ends every lock on the file. It unlocks the bytes that others look for
// by itself before: a process that is being forked off may have a copy of the
// descriptor for a moment, and those who hear of the close look at once.
func (l *lockFile) close(bytes ...int64) {
	for _, at := range bytes {
		unlockByte(l, at)
	}
	l.end(l)
	_ = l.file.Close()
	l.dir.leave()
}

// content is what a lock file says.
type content struct {
	token   uint64 // no hold has had a greater one
	skipped int64  // waiters up to this position have lost their turn
}

const (
	contentPrefix = "dlock 1 "
	contentFormat = contentPrefix + "%020d %020d\n"
	contentLength = len(contentPrefix) + 20 + 1 + 20 + 1
)

// ownerPrefix begins the second line, which says who has got the lock last. It may be
// missing, and what follows it is left of a longer one.
const ownerPrefix = "by "

// firstInQueue is the first position at which a waiter counts.
func (c content) firstInQueue() int64 { return max(c.skipped+1, firstPosition) }

// read returns the file's content. That of a new file is zero, and so is that of one
// of which a crash of the machine has left zeros, or the beginning: tokens go on by
// the clock.
func (l *lockFile) read() (c content, err error) {
	var buf [contentLength + 1]byte
	n, err := l.file.ReadAt(buf[:], 0)
	if err != nil && err != io.EOF {
		return c, systemError(err)
	}
	switch text := buf[:n]; {
	case len(bytes.Trim(text, "\x00")) == 0:
	case n < contentLength && isBeginning(string(text)):
	case n > contentLength && text[contentLength] != ownerPrefix[0], !c.parse(string(text[:min(n, contentLength)])):
		return c, notALockFile(l.path(), "not a lock file")
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
	token, skipped, ok2 := strings.Cut(strings.TrimSuffix(rest, "\n"), " ")
	var err1, err2 error
	c.token, err1 = strconv.ParseUint(token, 10, 64)
	c.skipped, err2 = strconv.ParseInt(skipped, 10, 64)
	return ok && ok2 && err1 == nil && err2 == nil && len(s) == contentLength
}

// write replaces the content, in one call, so that nobody who is killed leaves
// half of it. An empty owner leaves the second line alone. Only the holder of the lock
// may call it.
func (l *lockFile) write(c content, owner string) error {
	_, err := l.file.WriteAt(fmt.Appendf(nil, contentFormat+"%s", c.token, c.skipped, owner), 0)
	return systemError(err)
}
