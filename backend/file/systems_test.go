package file_test

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend/file"
)

// The tests of this file run on every system that has locks in files.

func open(t *testing.T, dir string) *dlock.Client {
	t.Helper()
	b, err := file.New(&file.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	c, err := dlock.New(b, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return c
}

// soon bounds what takes far less.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func lock(t *testing.T, m *dlock.Mutex) *dlock.Lease {
	t.Helper()
	lease, err := m.Lock(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func unlock(t *testing.T, lease *dlock.Lease) {
	t.Helper()
	if err := lease.Unlock(soon(t)); err != nil {
		t.Fatal(err)
	}
}

// TestUnusualNames locks what some system does not allow as the name of a file, and finds
// it among the names.
func TestUnusualNames(t *testing.T) {
	c := open(t, t.TempDir())
	for _, name := range []string{"orders:42", "con", "nul.job", "A/b", "a ", "b.", `*?"<>|`, strings.Repeat("ü", 300)} {
		lease := lock(t, c.Mutex(name))
		var found []string
		for n, err := range c.Names(soon(t), name) {
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, n)
		}
		if !slices.Contains(found, name) {
			t.Errorf("%.20q is held, and among the names are %.20q", name, found)
		}
		unlock(t, lease)
	}
}

// TestClientsCount has clients count in a file under a lock, with tokens that grow.
func TestClientsCount(t *testing.T) {
	const clients, each = 4, 25
	dir := t.TempDir()
	count := filepath.Join(t.TempDir(), "count")
	if err := os.WriteFile(count, []byte("0"), 0o600); err != nil {
		t.Fatal(err)
	}
	var last uint64 // the lock guards it
	increase := func(_ context.Context, lease *dlock.Lease) error {
		text, err := os.ReadFile(count)
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(string(text))
		if err != nil {
			return err
		}
		if lease.Token() <= last {
			t.Errorf("token %d after %d", lease.Token(), last)
		}
		last = lease.Token()
		return os.WriteFile(count, []byte(strconv.Itoa(n+1)), 0o600)
	}
	var all sync.WaitGroup
	for range clients {
		c := open(t, dir)
		all.Go(func() {
			for range each {
				if err := dlock.Do(soon(t), c.Mutex("counter"), increase); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if text, err := os.ReadFile(count); err != nil || string(text) != strconv.Itoa(clients*each) {
		t.Errorf("counted to %q, %v", text, err)
	}
}

// TestReaders has readers of two clients hold together, and a writer be kept out.
func TestReaders(t *testing.T) {
	dir := t.TempDir()
	a, b := open(t, dir), open(t, dir)
	first, err := a.RWMutex("lock").RLock(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	second, err := b.RWMutex("lock").TryRLock(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Mutex("lock").TryLock(soon(t)); !errors.Is(err, dlock.ErrHeld) {
		t.Errorf("a writer beside readers: %v", err)
	}
	unlock(t, first)
	unlock(t, second)
	unlock(t, lock(t, b.Mutex("lock")))
}

const holderDir = "DLOCK_TEST_HOLDER"

// TestDeathOfHolder kills a process that holds a lock: whoever waits gets it.
func TestDeathOfHolder(t *testing.T) {
	if dir := os.Getenv(holderDir); dir != "" {
		lock(t, open(t, dir).Mutex("lock"))
		if _, err := os.Stdout.WriteString("held\n"); err != nil {
			t.Fatal(err)
		}
		_, _ = io.ReadAll(os.Stdin) // does not end
		return
	}
	dir := t.TempDir()
	holder := exec.Command(os.Args[0], "-test.run=^TestDeathOfHolder$")
	holder.Env = append(os.Environ(), holderDir+"="+dir)
	stdin, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	said, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	ready := make([]byte, len("held\n"))
	_, readErr := io.ReadFull(said, ready)
	c := open(t, dir)
	_, held := c.Mutex("lock").TryLock(soon(t))
	_ = holder.Process.Kill()
	if readErr != nil || !errors.Is(held, dlock.ErrHeld) {
		t.Fatalf("the holder says %q, %v; the lock: %v", ready, readErr, held)
	}
	unlock(t, lock(t, c.Mutex("lock")))
	_ = holder.Wait()
}
