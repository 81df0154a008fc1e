//go:build linux && !dlock_portable

package file

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"golang.org/x/sys/unix"
)

const (
	filesOfHold      = 1 // that are open
	seesForeignLocks = true
)

func TestFlockCommand(t *testing.T) {
	dir := t.TempDir()
	c := newClient(t, dir)
	mustUnlock(t, mustLock(t, c.Mutex("lock")))
	f, err := os.Open(filepath.Join(dir, "lock.lock"))
	must(t, err)
	defer f.Close()
	must(t, syscall.Flock(int(f.Fd()), syscall.LOCK_EX))
	if _, err := c.Mutex("lock").TryLock(t.Context()); !errors.Is(err, dlock.ErrHeld) {
		t.Errorf("TryLock of a file that another program locked: %v", err)
	}
	calls := []*call{lockLater(t.Context(), c.Mutex("lock")), lockLater(t.Context(), newClient(t, dir).Mutex("lock"))}
	waitForQueue(t, dir, 2)
	must(t, syscall.Flock(int(f.Fd()), syscall.LOCK_UN))
	for _, call := range calls {
		go func() {
			<-call.done
			_ = call.lease.Unlock(context.Background())
		}()
	}
	for _, call := range calls {
		call.get(t)
	}
}

// Another program has locked all bytes of the file, as flock(2) does on network file
// systems. Whoever wants it gives up when its context does.
func TestAllBytesAreLocked(t *testing.T) {
	dir := t.TempDir()
	c := newClient(t, dir)
	mustUnlock(t, mustLock(t, c.Mutex("lock")))
	f, err := os.OpenFile(filepath.Join(dir, "lock.lock"), os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	must(t, unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Mutex("lock").Lock(ctx); !errors.Is(err, dlock.ErrHeld) {
		t.Errorf("Lock: %v", err)
	}
	waiter := lockLater(t.Context(), c.Mutex("lock"))
	time.AfterFunc(20*time.Millisecond, func() { f.Close() })
	mustUnlock(t, waiter.get(t))
}
