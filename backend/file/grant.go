//go:build linux

package file

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
	"golang.org/x/sys/unix"
)

// A grant is a lock that is held, by the flock and by byte 0 of the file.
type grant struct {
	*lockFile
	token uint64
	taken time.Time

	mu   sync.Mutex
	over bool
}

// flock locks the file in place of whatever lock it has. It reports false if
// another has it.
//
// It is the system call itself because libraries open a path of their own and
// hide the descriptor: the lock must be on the very file that was checked, and
// 10,000 holds must not cost 20,000 descriptors.
func (l *lockFile) flock(how int) (bool, error) {
	err := unix.Flock(int(l.file.Fd()), how|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, fail(err)
}

func (l *lockFile) unflock() { _, _ = l.flock(unix.LOCK_UN) }

func flockType(mode backend.Mode) int {
	if mode == backend.Shared {
		return unix.LOCK_SH
	}
	return unix.LOCK_EX
}

// take takes the lock if it is free. A nil grant means that it is held. To try
// on a held lock can get in the way of others: see held.
func (l *lockFile) take(mode backend.Mode) (*grant, error) {
	g := &grant{lockFile: l, taken: time.Now()}
	ok, err := l.flock(flockType(mode))
	if ok {
		g.token, ok, err = l.enter(mode)
	}
	if !ok {
		l.unflock()
		return nil, err
	}
	return g, nil
}

// held reports whether the lock is held in a way that keeps mode out. It
// disturbs nobody.
func (l *lockFile) held(mode backend.Mode) (bool, error) {
	_, held, err := findRecord(l.file, recordType(mode), heldByte, heldByte)
	return held, err
}

// enter marks the file as held, under the flock and if the path still names
// it. It may be refused even so: one who dies lets go of flock and bytes one
// after the other.
func (l *lockFile) enter(mode backend.Mode) (token uint64, ok bool, err error) {
	if err = l.current(); err != nil {
		return 0, false, err
	}
	if mode == backend.Shared {
		return l.enterShared()
	}
	if ok, err = lockRecord(l.file, unix.F_WRLCK, heldByte); ok {
		token, err = l.nextToken()
	}
	return l.entered(token, ok, err)
}

// enterShared joins the readers inside, or begins a phase of readers if there
// are none. It is one reader's turn at a time to find out which.
func (l *lockFile) enterShared() (token uint64, ok bool, err error) {
	if ok, err = l.awaitEntry(); !ok {
		return 0, false, err
	}
	defer unlockRecord(l.file, entryByte)
	if ok, err = lockRecord(l.file, unix.F_RDLCK, heldByte); ok {
		token, err = l.phaseToken()
	}
	return l.entered(token, ok, err)
}

// phaseToken returns the token of the phase of readers that has just been
// joined or begun.
func (l *lockFile) phaseToken() (uint64, error) {
	_, joined, err := findRecord(l.file, unix.F_WRLCK, heldByte, heldByte)
	if err != nil {
		return 0, err
	}
	if !joined {
		return l.nextToken()
	}
	c, err := l.read()
	return c.token, err
}

// entered undoes an entry that could not be completed.
func (l *lockFile) entered(token uint64, ok bool, err error) (uint64, bool, error) {
	if err != nil {
		unlockRecord(l.file, heldByte)
		ok = false
	}
	return token, ok, err
}

// awaitEntry locks the entry byte. Readers have it for some microseconds, so
// that a pause is enough; whoever is stopped with it does not stop the others
// in here.
func (l *lockFile) awaitEntry() (ok bool, err error) {
	for limit := time.Now().Add(50 * time.Millisecond); ; {
		ok, err = lockRecord(l.file, unix.F_WRLCK, entryByte)
		if ok || err != nil || time.Now().After(limit) {
			return ok, err
		}
		time.Sleep(50 * time.Microsecond)
	}
}

// nextToken writes a new token. It grows by the clock, so that a file that is
// deleted does not send it back.
func (l *lockFile) nextToken() (uint64, error) {
	c, err := l.read()
	if err != nil {
		return 0, err
	}
	c.token = max(c.token+1, uint64(time.Now().UnixMicro()))
	return c.token, l.write(c)
}

// standing reports ErrLost if the grant is over or its file was replaced. It
// is called with g.mu held.
func (g *grant) standing() error {
	if g.over {
		return backend.ErrLost
	}
	if err := g.current(); !errors.Is(err, errReplaced) {
		return err
	}
	return backend.Fail(backend.ErrLost, errReplaced)
}

// draw gives the grant a new token.
func (g *grant) draw() (uint64, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.standing(); err != nil {
		return 0, err
	}
	return g.nextToken()
}

func (g *grant) renew() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.standing()
}

// release ends the grant, and reports ErrLost if it was over before.
func (g *grant) release() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	err := g.standing()
	if g.over {
		return err
	}
	g.over = true
	g.unflock()
	g.close(heldByte)
	if errors.Is(err, backend.ErrLost) {
		return err
	}
	return nil
}

// downgrade makes the grant shared and wakes the readers that wait. Byte 0
// stays locked throughout: if the kernel should free the flock on the way, a
// writer who takes it is still refused, and lets go of it again.
func (g *grant) downgrade() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.standing(); err != nil {
		return err
	}
	if _, err := lockRecord(g.file, unix.F_RDLCK, heldByte); err != nil {
		return err
	}
	for limit := time.Now().Add(time.Second); ; time.Sleep(time.Millisecond) {
		ok, err := g.flock(unix.LOCK_SH)
		switch {
		case err != nil:
			return err
		case ok:
			g.signal()
			return nil
		case time.Now().After(limit):
			return backend.Fail(backend.ErrLost, fmt.Errorf("%s: another program locked it", g.path))
		}
	}
}
