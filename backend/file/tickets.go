//go:build !linux || dlock_portable

package file

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// Where the system has no record locks that belong to an open file, a ticket stands for
// the lock of a byte: a file of its own, in a directory beside the lock file, which its
// owner keeps locked as a whole. The name of a ticket tells the byte, the mode and the
// process:
//
//	0001795480184077769.w.4711.K5QXF2AB
//
// Only its owner locks a ticket exclusively. Others lock it shared for a moment, which
// succeeds when the owner is dead, and so disturb neither the owner nor one another.
// Nobody tells who waits of anything: it looks again and again.

// positions are the tickets of an open lock file.
type positions struct {
	own    map[int64]ticket // by byte
	holder string           // the ticket of byte 0 that was found last; it is looked at first
	ahead  string           // the same of those who wait
}

// A ticket is an open file that is locked.
type ticket struct {
	path string // in the directory
	file *os.File
}

// A ticketName is what the name of a ticket tells.
type ticketName struct {
	at   int64
	mode backend.Mode
	pid  int
}

// joinName is the file that stands for joinByte. Nobody looks for its lock.
const joinName = "join"

// ticketFiles are the names of what is in a directory of tickets.
var ticketFiles = regexp.MustCompile(`^[0-9]{19}\.[wr]\.[0-9]+\.[0-9A-Za-z]+$|^` + joinName + `$`)

// joinTimeout bounds the wait for readers who join before this one: each of them makes
// a file and removes it.
const joinTimeout = time.Second

// ticketModes are the modes by the letter for them.
var ticketModes = map[string]backend.Mode{"w": backend.Exclusive, "r": backend.Shared}

// ticketPrefix is the name of a ticket, up to its last part.
func ticketPrefix(at int64, mode backend.Mode) string {
	letter := "w"
	if mode == backend.Shared {
		letter = "r"
	}
	return fmt.Sprintf("%019d.%s.%d.", at, letter, os.Getpid())
}

func parseTicketName(name string) (t ticketName, ok bool) {
	fields := strings.Split(name, ".")
	if len(fields) != 4 {
		return t, false
	}
	var err, err2 error
	t.at, err = strconv.ParseInt(fields[0], 10, 64)
	t.mode, ok = ticketModes[fields[1]]
	t.pid, err2 = strconv.Atoi(fields[2])
	return t, ok && err == nil && err2 == nil
}

// keepsOut reports whether two locks of one byte exclude each other.
func keepsOut(a, b backend.Mode) bool { return a == backend.Exclusive || b == backend.Exclusive }

// ticketDirectory is that of this very lock file: a new one of the same name has another.
func (l *lockFile) ticketDirectory() (string, error) {
	id, err := fileID(l.file, l.info)
	return l.name + "." + strconv.FormatUint(id, 36) + ".tickets", err
}

// lockByte locks the byte at. It reports false if another has it. Whoever locks
// heldByte has the whole file, so that nobody else does so at the same time. Waiters
// choose positions by the clock: those of the same nanosecond may have the same.
func lockByte(l *lockFile, mode backend.Mode, at int64) (bool, error) {
	dir, err := l.ticketDirectory()
	if err != nil {
		return false, err
	}
	if at == heldByte {
		if _, length, err := findLock(l, mode, at, at); length > 0 || err != nil {
			return false, err
		}
	}
	t, err := l.newTicket(dir, at, mode)
	if t.file == nil {
		return false, err
	}
	unlockByte(l, at) // the one that it replaces
	if l.own == nil {
		l.own = make(map[int64]ticket)
	}
	l.own[at] = t
	return true, nil
}

// newTicket makes a ticket, and none if the byte is that of a reader who joins and
// another has it.
func (l *lockFile) newTicket(dir string, at int64, mode backend.Mode) (t ticket, err error) {
	if at == joinByte {
		t.path = filepath.Join(dir, joinName)
		t.file, err = l.dir.openLocked(t.path)
	} else {
		t.path, t.file, err = l.dir.makeLocked(dir, ticketPrefix(at, mode))
	}
	return t, err
}

// unlockByte gives back what lockByte took. The last one in it removes the directory.
func unlockByte(l *lockFile, at int64) {
	t, ok := l.own[at]
	if !ok {
		return
	}
	delete(l.own, at)
	if at == joinByte { // the next reader may have the file open
		unlockWhole(t.file)
		_ = t.file.Close()
		return
	}
	err := l.dir.remove(t.path)
	unlockWhole(t.file)
	_ = t.file.Close()
	if err != nil { // an open file cannot be removed on Windows
		_ = l.dir.remove(t.path)
	}
	l.removeDirectory(filepath.Dir(t.path))
}

// removeDirectory removes the directory of tickets if nobody who lives has one in it. It
// looks no further than the first such ticket. The dead may have left theirs where nobody
// else looks: at a position that was skipped, or as readers.
func (l *lockFile) removeDirectory(dir string) {
	if l.dir.remove(dir) == nil {
		return
	}
	paths, err := l.tickets()
	join := filepath.Join(dir, joinName)
	if err != nil || slices.ContainsFunc(paths, func(path string) bool { return path != join && l.dir.isAlive(path) }) {
		return
	}
	if slices.Contains(paths, join) {
		t, err := l.newTicket(dir, joinByte, backend.Exclusive)
		if t.file == nil || err != nil {
			return
		}
		_ = l.dir.remove(t.path) // while it is locked: a reader who has it open makes another
		_ = t.file.Close()
	}
	_ = l.dir.remove(dir)
}

// end unlocks all bytes.
func (p *positions) end(l *lockFile) {
	for at := range p.own {
		unlockByte(l, at)
	}
}

// findLock returns where in the bytes from first to last another has a lock that keeps
// one of mode out: the last such lock. Its length is 0 if there is none. Who waits thus
// looks at who is just before, and looks again at all tickets only when that one is gone.
func findLock(l *lockFile, mode backend.Mode, first, last int64) (at, length int64, err error) {
	matches := func(path string) (int64, bool) {
		t, ok := parseTicketName(filepath.Base(path))
		return t.at, ok && t.at >= first && t.at <= last && keepsOut(mode, t.mode) && l.own[t.at].path != path
	}
	seen := &l.ahead
	if last == heldByte {
		seen = &l.holder
	}
	if at, ok := matches(*seen); ok && l.dir.isAlive(*seen) {
		return at, 1, nil
	}
	paths, err := l.tickets()
	for _, path := range slices.Backward(paths) {
		if at, ok := matches(path); ok && l.dir.isAlive(path) {
			*seen = path
			return at, 1, nil
		}
	}
	return 0, 0, err
}

// pauseOfLooks is how often a waiter looks who is first, of those that are skipped after
// timeout: seldom, because it reads the whole directory.
func pauseOfLooks(timeout time.Duration) time.Duration { return timeout / 8 }

// firstLock returns the first byte from first to last that another has a lock of, or last.
func firstLock(l *lockFile, first, last int64) (int64, error) {
	paths, err := l.tickets()
	for _, path := range paths {
		t, ok := parseTicketName(filepath.Base(path))
		if ok && t.at >= first && t.at < last && l.own[t.at].path != path && l.dir.isAlive(path) {
			return t.at, nil
		}
	}
	return last, err
}

// tickets returns the paths of all tickets, in the order of their bytes.
func (l *lockFile) tickets() ([]string, error) {
	dir, err := l.ticketDirectory()
	if err != nil {
		return nil, err
	}
	return l.dir.list(dir, ticketFiles)
}

// locksOf returns who holds the lock. It does not show other programs that have locked
// the file.
func locksOf(l *lockFile) (all []wholeLock) {
	paths, _ := l.tickets()
	for _, path := range paths {
		if t, ok := parseTicketName(filepath.Base(path)); ok && t.at == heldByte && l.dir.isAlive(path) {
			all = append(all, wholeLock{t.pid, t.mode})
		}
	}
	return all
}

// A notifier tells nothing here: who waits looks again and again.
type notifier struct{}

func useNotifier() *notifier { return nil }
func leaveNotifier()         {}

func (n *notifier) watch(*os.File, chan struct{}) (stop func(), ok bool) { return func() {}, false }
