//go:build !dlock_portable

package file

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dlock-go/dlock/backend"
	"golang.org/x/sys/unix"
)

// joinTimeout bounds the wait for readers who join before this one.
const joinTimeout = 50 * time.Millisecond

// positions are the record locks of an open file. The kernel remembers them, and ends
// them with the file.
type positions struct{}

func (positions) end(*lockFile) {}

// lockByte locks the byte at. It reports false if another has it.
func lockByte(l *lockFile, mode backend.Mode, at int64) (bool, error) {
	return setRange(l, rangeType(mode), at)
}

// unlockByte gives back what lockByte took. It cannot fail on a file that is open.
func unlockByte(l *lockFile, at int64) { _, _ = setRange(l, unix.F_UNLCK, at) }

func setRange(l *lockFile, typ int16, at int64) (bool, error) {
	r := unix.Flock_t{Type: typ, Whence: io.SeekStart, Start: at, Len: 1}
	err := unix.FcntlFlock(l.file.Fd(), unix.F_OFD_SETLK, &r)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return false, nil
	}
	return err == nil, systemError(err)
}

// findLock returns where in the bytes from first to last another has a lock that keeps
// one of mode out: any such lock. Its length is 0 if there is none.
func findLock(l *lockFile, mode backend.Mode, first, last int64) (at, length int64, err error) {
	if first > last {
		return 0, 0, nil
	}
	r := unix.Flock_t{Type: rangeType(mode), Whence: io.SeekStart, Start: first, Len: last - first + 1}
	if err := unix.FcntlFlock(l.file.Fd(), unix.F_OFD_GETLK, &r); err != nil || r.Type == unix.F_UNLCK {
		return 0, 0, systemError(err)
	}
	if r.Len == 0 { // to the end, wherever that is
		r.Len = lastPosition
	}
	return max(r.Start, first), r.Len, nil
}

// pauseOfLooks is how often a waiter looks who is first: each time that it is woken.
func pauseOfLooks(time.Duration) time.Duration { return 0 }

// firstLock returns the first byte from first to last that another has a lock of, or last.
func firstLock(l *lockFile, first, last int64) (int64, error) {
	for {
		before, length, err := findLock(l, backend.Exclusive, first, last-1)
		if length == 0 || err != nil {
			return last, err
		}
		last = before
	}
}

func rangeType(mode backend.Mode) int16 {
	if mode == backend.Shared {
		return unix.F_RDLCK
	}
	return unix.F_WRLCK
}

// locksOf returns who has the lock of the whole file, as far as /proc/locks tells.
// It does not show those of other containers.
func locksOf(l *lockFile) (all []wholeLock) {
	st, ok := l.info.Sys().(*syscall.Stat_t)
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
