//go:build linux && dlock_portable

package file

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

const (
	filesOfHold      = 2 // that are open: its ticket, too
	seesForeignLocks = false
)

func ticketsIn(t *testing.T, dir string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "*.tickets", "*.*"))
	must(t, err)
	return all
}

// TestTicketsEndWithTheirUse leaves no ticket and no directory of tickets.
func TestTicketsEndWithTheirUse(t *testing.T) {
	dir := t.TempDir()
	c := newClients(t, dir, 2)
	reader := mustLock(t, c[0].RWMutex("lock").RLocker())
	writer := lockLater(t.Context(), c[1].Mutex("lock"))
	waitForQueue(t, dir, 1)
	if n := len(ticketsIn(t, dir)); n != 2 {
		t.Errorf("%d tickets, want one of the reader and one of the writer who waits", n)
	}
	mustUnlock(t, reader)
	mustUnlock(t, writer.get(t))
	if all, _ := filepath.Glob(filepath.Join(dir, "*.tickets")); len(all) > 0 {
		t.Errorf("%v stays", all)
	}
}

// TestTicketsOfTheDeadAreRemoved has tickets that nobody has locked hold nobody up.
func TestTicketsOfTheDeadAreRemoved(t *testing.T) {
	dir := t.TempDir()
	c := newClient(t, dir)
	mustUnlock(t, mustLock(t, c.Mutex("lock")))
	l, err := openLock(filepath.Join(dir, "lock.lock"), os.O_RDWR)
	must(t, err)
	defer l.close()
	tickets, err := l.ticketDirectory()
	must(t, err)
	must(t, os.Mkdir(filepath.Join(dir, tickets), 0o700))
	for _, at := range []int64{heldByte, time.Now().UnixNano()} {
		must(t, os.WriteFile(filepath.Join(dir, tickets, ticketPrefix(at, backend.Exclusive)+"dead"), nil, 0o600))
	}
	lease, err := c.Mutex("lock").TryLock(t.Context())
	must(t, err)
	mustUnlock(t, lease)
	if all := ticketsIn(t, dir); len(all) > 0 {
		t.Errorf("%v stay", all)
	}
}

// TestTicketsThatNobodyLooksForAreRemoved has the last one to leave remove the tickets of
// a reader who is dead and of a waiter who was skipped and is dead.
func TestTicketsThatNobodyLooksForAreRemoved(t *testing.T) {
	dir := t.TempDir()
	c := newClient(t, dir)
	lease := mustLock(t, c.RWMutex("lock").RLocker())
	l, err := openLock(filepath.Join(dir, "lock.lock"), os.O_RDWR)
	must(t, err)
	defer l.close()
	skipped := time.Now().UnixNano()
	found, err := l.read()
	must(t, err)
	found.skipped = skipped
	must(t, l.write(found, ""))
	tickets, err := l.ticketDirectory()
	must(t, err)
	for _, name := range []string{ticketPrefix(heldByte, backend.Shared) + "dead", ticketPrefix(skipped, backend.Exclusive) + "dead"} {
		must(t, os.WriteFile(filepath.Join(dir, tickets, name), nil, 0o600))
	}
	mustUnlock(t, lease)
	if all, _ := filepath.Glob(filepath.Join(dir, "*.tickets", "*")); len(all) > 0 {
		t.Errorf("%v stay", all)
	}
	if all, _ := filepath.Glob(filepath.Join(dir, "*.tickets")); len(all) > 0 {
		t.Errorf("%v stays", all)
	}
}

// TestNearestTicketIsWatched has who waits look at who is just before, so that not all who
// wait read the whole directory when the first of them has had its turn.
func TestNearestTicketIsWatched(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock.lock")
	var all []*lockFile
	for range 3 {
		l, err := openLock(path, os.O_RDWR|os.O_CREATE)
		must(t, err)
		defer l.close()
		all = append(all, l)
	}
	for i, l := range all[:2] {
		ok, err := lockByte(l, backend.Exclusive, int64(100*(i+1)))
		must(t, err)
		if !ok {
			t.Fatal("a byte that nobody has was refused")
		}
	}
	for _, when := range []string{"first", "again"} {
		if at, length, err := findLock(all[2], backend.Exclusive, 2, 299); at != 200 || length != 1 || err != nil {
			t.Errorf("%s: found %d, %d, %v, not who is just before", when, at, length, err)
		}
	}
	if at, err := firstLock(all[2], 2, 200); at != 100 || err != nil {
		t.Errorf("the first is %d, %v", at, err)
	}
	unlockByte(all[0], 100)
	if at, err := firstLock(all[2], 2, 200); at != 200 || err != nil {
		t.Errorf("the first that is left is %d, %v", at, err)
	}
}

// TestTicketsOfADeletedFile has those of a lock file that was deleted hold up nobody at
// the file that took its place.
func TestTicketsOfADeletedFile(t *testing.T) {
	dir := t.TempDir()
	c := newClients(t, dir, 2)
	lost := mustLock(t, c[0].Mutex("lock"))
	must(t, os.Remove(filepath.Join(dir, "lock.lock")))
	mustUnlock(t, mustLock(t, c[1].Mutex("lock")))
	if err := lost.Unlock(t.Context()); err != nil && !errors.Is(err, dlock.ErrLost) {
		t.Error(err)
	}
}

// TestManyLookAtOnce has many look for the locks of others all the time, while a lock
// that is free is taken and given back: none of them is taken for a holder.
func TestManyLookAtOnce(t *testing.T) {
	dir := t.TempDir()
	c := newClient(t, dir)
	mustUnlock(t, mustLock(t, c.Mutex("lock")))
	done := make(chan struct{})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			l, err := openLock(filepath.Join(dir, "lock.lock"), os.O_RDWR)
			if err != nil {
				t.Error(err)
				return
			}
			defer l.close()
			for {
				select {
				case <-done:
					return
				default:
				}
				if _, _, err := findLock(l, backend.Exclusive, heldByte, lastPosition); err != nil && !errors.Is(err, fs.ErrNotExist) {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 500 {
		lease, err := c.Mutex("lock").TryLock(t.Context())
		if err != nil {
			t.Error(err)
			break
		}
		mustUnlock(t, lease)
	}
	close(done)
	all.Wait()
}
