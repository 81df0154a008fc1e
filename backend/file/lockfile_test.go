//go:build linux

package file

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

func TestDeletedFileIsLost(t *testing.T) {
	dir := t.TempDir()
	c := newClients(t, dir, 2)
	lease := mustLock(t, c[0].Mutex("lock"))
	waiter := lockLater(t.Context(), c[1].Mutex("lock"))
	waitForQueue(t, dir, 1)
	must(t, os.Remove(filepath.Join(dir, "lock.lock")))
	next := waiter.get(t)
	if next.Token() <= lease.Token() {
		t.Errorf("token %d after %d", next.Token(), lease.Token())
	}
	select {
	case <-lease.Done():
	case <-time.After(limit):
		t.Fatal("loss was not noticed")
	}
	if err := lease.Unlock(t.Context()); !errors.Is(err, dlock.ErrLost) {
		t.Errorf("Unlock after loss: %v", err)
	}
	mustUnlock(t, next)
}

func TestDeletedFileIsNotTaken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock.lock")
	for _, mode := range []backend.Mode{backend.Exclusive, backend.Shared} {
		l, err := openLock(path, os.O_RDWR|os.O_CREATE)
		must(t, err)
		defer l.close()
		must(t, os.Remove(path))
		if g, err := l.tryLock(t.Context(), backend.Request{Mode: mode}); g != nil || !errors.Is(err, errReplaced) {
			t.Errorf("%v lock of a deleted file: %v, %v", mode, g, err)
		}
	}
}

func TestNames(t *testing.T) {
	dir := t.TempDir()
	c := newClient(t, dir)
	for _, name := range []string{"a", "a/b", "/a", "a/", "A", "..", ".", "\x00", "\n", "\xff", strings.Repeat("x", 1024), strings.Repeat("x", 1023)} {
		defer mustUnlock(t, mustLock(t, c.Mutex(name)))
		if _, err := newClient(t, dir).Mutex(name).TryLock(t.Context()); !errors.Is(err, dlock.ErrHeld) {
			t.Errorf("%.10q does not exclude itself: %v", name, err)
		}
	}
}

// A file of which a crash of the machine has left zeros, or the beginning, is a lock
// file again, and tokens go on growing.
func TestDamagedFileHeals(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "lock.lock")
	m := newClient(t, dir).Mutex("lock")
	last := uint64(0)
	ours := fmt.Sprintf(contentFormat, 1, 0)
	for _, text := range []string{"", ours[:3], ours[:10], ours[:len(ours)-1], strings.Repeat("\x00", contentLength), strings.Repeat("\x00", 2*contentLength), strings.Repeat("\x00", 9)} {
		must(t, os.WriteFile(path, []byte(text), 0o600))
		for range 2 {
			lease := mustLock(t, m)
			if lease.Token() <= last {
				t.Errorf("%q: token %d after %d", text, lease.Token(), last)
			}
			last = lease.Token()
			mustUnlock(t, lease)
		}
		healed, err := os.ReadFile(path)
		must(t, err)
		if c := (content{}); len(healed) < contentLength || !c.parse(string(healed[:contentLength])) || !strings.HasPrefix(string(healed[contentLength:]), ownerPrefix) {
			t.Errorf("%q became %q", text, healed)
		}
	}
}

func TestForeignFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "lock.lock")
	target := filepath.Join(dir, "target")
	must(t, os.WriteFile(target, nil, 0o600))
	ours := fmt.Sprintf(contentFormat, 1, 0)
	for name, f := range map[string]func() error{
		"directory": func() error { return os.Mkdir(path, 0o700) },
		"pipe":      func() error { return syscall.Mkfifo(path, 0o600) },
		"symlink":   func() error { return os.Symlink(target, path) },
		"text":      func() error { return os.WriteFile(path, []byte("hello"), 0o600) },
		"longer":    func() error { return os.WriteFile(path, []byte(ours+"x"), 0o600) },
		"half ours": func() error { return os.WriteFile(path, []byte(ours[:len(ours)-3]+ownerPrefix), 0o600) },
		"similar":   func() error { return os.WriteFile(path, []byte("x"+ours[1:]), 0o600) },
	} {
		must(t, f())
		before, err := os.Lstat(path)
		must(t, err)
		m := newClient(t, dir).Mutex("lock")
		if _, err := m.Lock(t.Context()); !errors.Is(err, dlock.ErrConflict) {
			t.Errorf("%s: Lock: %v", name, err)
		}
		if _, err := m.TryLock(t.Context()); !errors.Is(err, dlock.ErrConflict) {
			t.Errorf("%s: TryLock: %v", name, err)
		}
		after, err := os.Lstat(path)
		must(t, err)
		if !os.SameFile(before, after) || before.ModTime() != after.ModTime() || before.Size() != after.Size() {
			t.Errorf("%s was touched", name)
		}
		must(t, os.RemoveAll(path))
	}
}
