//go:build linux

package file

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/backend"
	"golang.org/x/sys/unix"
)

// A grant is a lock that is held, by the flock and by byte 0 of the file.
type grant struct {
	*lockFile
	token uint64 // with which it began
	taken time.Time

	// The file says limit while an exclusive hold lasts, so that its holder can draw
	// tokens without a word to the file, whatever becomes of it.
	last  atomic.Uint64 // the token drawn last
	limit atomic.Uint64 // 0: none can be drawn

	mu     sync.Mutex
	passed int64 // as content's
	over   bool
}

// reserve is how many tokens a hold can draw until its next renewal. They are
// microseconds: a holder who dies leaves the next token so far ahead of the clock.
const reserve = 10_000

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
		ok, err = g.enter(mode)
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
func (g *grant) enter(mode backend.Mode) (ok bool, err error) {
	if err = g.current(); err != nil {
		return false, err
	}
	if mode == backend.Shared {
		return g.enterShared()
	}
	if ok, err = lockRecord(g.file, unix.F_WRLCK, heldByte); ok {
		err = g.nextToken(reserve)
	}
	return g.entered(ok, err)
}

// enterShared joins the readers inside, or begins a phase of readers if there
// are none. It is one reader's turn at a time to find out which.
func (g *grant) enterShared() (ok bool, err error) {
	if ok, err = g.awaitEntry(); !ok {
		return false, err
	}
	defer unlockRecord(g.file, entryByte)
	if ok, err = lockRecord(g.file, unix.F_RDLCK, heldByte); ok {
		err = g.phaseToken()
	}
	return g.entered(ok, err)
}

// phaseToken takes the token of the phase of readers that has just been joined or
// begun.
func (g *grant) phaseToken() error {
	_, joined, err := findRecord(g.file, unix.F_WRLCK, heldByte, heldByte)
	if err != nil {
		return err
	}
	if !joined {
		return g.nextToken(0)
	}
	c, err := g.read()
	g.token = c.token
	return err
}

// entered undoes an entry that could not be completed.
func (g *grant) entered(ok bool, err error) (bool, error) {
	if err != nil {
		unlockRecord(g.file, heldByte)
		ok = false
	}
	return ok, err
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

// nextToken takes a new token, and so many more that can be drawn. It grows by the
// clock, so that a file that is deleted does not send it back.
func (g *grant) nextToken(more uint64) error {
	c, err := g.read()
	if err != nil {
		return err
	}
	g.token, g.passed = max(c.token+1, uint64(time.Now().UnixMicro())), c.passed
	if err := g.write(content{g.token + more, g.passed}); err != nil {
		return err
	}
	g.last.Store(g.token)
	if more > 0 {
		g.limit.Store(g.token + more)
	}
	return nil
}

// draw returns the next token of an exclusive hold: one that the file allows for and
// that is behind the clock, so that it is not forgotten with the file either.
func (g *grant) draw() (token uint64, ok bool) {
	last := g.last.Load()
	if last >= g.limit.Load() || last+1 >= uint64(time.Now().UnixMicro()) {
		return 0, false
	}
	return last + 1, g.last.CompareAndSwap(last, last+1)
}

// account writes down which tokens were drawn, or may yet be. It is called with g.mu
// held.
func (g *grant) account(more uint64) error {
	if g.limit.Load() == 0 {
		return nil
	}
	limit := g.last.Load() + more
	if more == 0 {
		g.limit.Store(0)
	}
	err := g.write(content{limit, g.passed})
	if err == nil && more > 0 {
		g.limit.Store(limit)
	}
	return err
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

func (g *grant) renew() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.standing(); err != nil || g.limit.Load()-g.last.Load() > reserve/2 {
		return err
	}
	return g.account(reserve)
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
	if err == nil {
		_ = g.account(0)
	}
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
	if err := g.account(0); err != nil { // readers share the token
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
			return backend.Fail(backend.ErrLost, fmt.Errorf("%s: another program locked it", g.path()))
		}
	}
}
