//go:build linux && !dlock_portable

package file

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

func watch(t *testing.T, n *notifier, path string) <-chan struct{} {
	t.Helper()
	wake := make(chan struct{}, 1)
	f, err := os.Open(path)
	must(t, err)
	defer f.Close()
	if _, ok := n.watch(f, wake); !ok {
		t.Fatal("no watch")
	}
	return wake
}

func TestTryLockWakesNobody(t *testing.T) {
	dir := t.TempDir()
	c := newClients(t, dir, 2)
	lease := mustLock(t, c[0].Mutex("lock"))
	defer mustUnlock(t, lease)
	n := useNotifier()
	defer leaveNotifier()
	wake := watch(t, n, filepath.Join(dir, "lock.lock"))
	for range 10 {
		_, err := c[1].Mutex("lock").TryLock(t.Context())
		if !errors.Is(err, dlock.ErrHeld) {
			t.Fatal(err)
		}
	}
	other := filepath.Join(dir, "fence")
	must(t, os.WriteFile(other, nil, 0o600))
	fence := watch(t, n, other)
	must(t, os.WriteFile(other, nil, 0o600))
	<-fence // events come in order
	select {
	case <-wake:
		t.Error("a failed TryLock woke those who wait")
	default:
	}
}

func TestWithoutInotify(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "lock.lock")
	b, err := New(&Options{Dir: dir})
	must(t, err)
	defer b.Close(t.Context())
	r := backend.Request{Name: "lock", ID: backend.ID{Client: "a", Seq: 1}, Mode: backend.Exclusive, TTL: time.Second, Wait: true}
	h, err := b.Acquire(t.Context(), r)
	must(t, err)
	l, err := openLock(path, os.O_RDWR)
	must(t, err)
	time.AfterFunc(10*time.Millisecond, func() { _ = b.Release(context.Background(), h) })
	g, err := newWaiter(l, r).wait(t.Context(), nil)
	must(t, err)
	must(t, g.release())
}

func TestLeavingIsHeard(t *testing.T) {
	dir := t.TempDir()
	c := newClient(t, dir)
	n := useNotifier()
	defer leaveNotifier()
	lease := mustLock(t, c.Mutex("lock"))
	wake := watch(t, n, filepath.Join(dir, "lock.lock"))
	for _, leave := range []func(context.Context) error{lease.Downgrade, lease.Unlock} {
		must(t, leave(t.Context()))
		select {
		case <-wake:
		case <-time.After(limit):
			t.Fatal("nobody heard of it")
		}
	}
}

// TestDowngradeIsHeardWithoutDescriptors has a holder downgrade when its process may open no
// further file: who waits hears of it all the same.
func TestDowngradeIsHeardWithoutDescriptors(t *testing.T) {
	dir := t.TempDir()
	n := useNotifier()
	defer leaveNotifier()
	lease := mustLock(t, newClient(t, dir).Mutex("lock"))
	wake := watch(t, n, filepath.Join(dir, "lock.lock"))
	var was syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was))
	must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Max: was.Max}))
	defer func() { must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was)) }()
	if _, err := os.Open(dir); !errors.Is(err, syscall.EMFILE) {
		t.Fatalf("opened beyond the limit: %v", err)
	}
	must(t, lease.Downgrade(t.Context()))
	select {
	case <-wake:
	case <-time.After(limit):
		t.Fatal("nobody heard of it")
	}
}
