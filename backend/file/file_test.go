//go:build linux

package file

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"golang.org/x/sys/unix"
)

func TestExclusionOfClients(t *testing.T) {
	const clients, rounds = 24, 20
	dir := t.TempDir()
	var inside atomic.Int32
	var last uint64
	var all sync.WaitGroup
	for _, c := range newClients(t, dir, clients) {
		all.Go(func() {
			for range rounds {
				lease := mustLock(t, c.Mutex("lock"))
				if inside.Add(1) != 1 {
					t.Error("two inside")
				}
				if lease.Token() <= last {
					t.Errorf("token %d after %d", lease.Token(), last)
				}
				last = lease.Token()
				inside.Add(-1)
				mustUnlock(t, lease)
			}
		})
	}
	all.Wait()
}

func TestTryLock(t *testing.T) {
	dir := t.TempDir()
	c := newClients(t, dir, 3)
	lease, err := c[0].Mutex("lock").TryLock(t.Context())
	must(t, err)
	if _, err := c[1].Mutex("lock").TryLock(t.Context()); !errors.Is(err, dlock.ErrHeld) {
		t.Errorf("TryLock of a held lock: %v", err)
	}
	if _, err := c[1].RWMutex("lock").TryRLock(t.Context()); !errors.Is(err, dlock.ErrHeld) {
		t.Errorf("TryRLock of a held lock: %v", err)
	}
	mustUnlock(t, lease)

	reader := mustLock(t, c[0].RWMutex("lock").RLocker())
	shared, err := c[1].RWMutex("lock").TryRLock(t.Context())
	must(t, err)
	mustUnlock(t, shared)
	writer := lockLater(t.Context(), c[1].Mutex("lock"))
	waitForQueue(t, dir, 1)
	if _, err := c[2].RWMutex("lock").TryRLock(t.Context()); !errors.Is(err, dlock.ErrHeld) {
		t.Errorf("TryRLock overtook a writer: %v", err)
	}
	mustUnlock(t, reader)
	mustUnlock(t, writer.get(t))
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

func TestOneWinner(t *testing.T) {
	dir := t.TempDir()
	clients := newClients(t, dir, 32)
	for range 5 {
		var won, readers atomic.Int32
		var all sync.WaitGroup
		leases := make(chan *dlock.Lease, 2*len(clients))
		begin := make(chan struct{})
		for _, c := range clients {
			all.Go(func() {
				<-begin
				if lease, err := c.Mutex("lock").TryLock(t.Context()); err == nil {
					won.Add(1)
					leases <- lease
				}
			})
		}
		close(begin)
		all.Wait()
		if won.Load() != 1 {
			t.Fatalf("%d winners", won.Load())
		}
		mustUnlock(t, <-leases)
		for _, c := range clients {
			all.Go(func() {
				if lease, err := c.RWMutex("lock").TryRLock(t.Context()); err == nil {
					readers.Add(1)
					leases <- lease
				}
			})
		}
		all.Wait()
		if int(readers.Load()) != len(clients) {
			t.Fatalf("%d readers of %d got in", readers.Load(), len(clients))
		}
		close(leases)
		token := uint64(0)
		for lease := range leases {
			if token != 0 && lease.Token() != token {
				t.Errorf("tokens %d and %d in one phase of readers", token, lease.Token())
			}
			token = lease.Token()
			mustUnlock(t, lease)
		}
	}
}

func TestFIFO(t *testing.T) {
	dir := t.TempDir()
	holder := mustLock(t, newClient(t, dir).Mutex("lock"))
	var mu sync.Mutex
	var order []int
	var all sync.WaitGroup
	leaving, leave := context.WithCancel(t.Context())
	for i, c := range newClients(t, dir, 5) {
		ctx := t.Context()
		if i == 2 {
			ctx = leaving
		}
		all.Go(func() {
			lease, err := c.Mutex("lock").Lock(ctx)
			if i == 2 {
				if !errors.Is(err, dlock.ErrHeld) || !errors.Is(err, context.Canceled) {
					t.Errorf("cancelled Lock: %v", err)
				}
				return
			}
			must(t, err)
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			mustUnlock(t, lease)
		})
		waitForQueue(t, dir, i+1)
	}
	leave()
	waitForQueue(t, dir, 4)
	mustUnlock(t, holder)
	all.Wait()
	if len(order) != 4 || order[0] != 0 || order[1] != 1 || order[2] != 3 || order[3] != 4 {
		t.Errorf("order %v", order)
	}
}

func TestFIFOThoughClockGoesBack(t *testing.T) {
	dir := t.TempDir()
	holder := mustLock(t, newClient(t, dir).Mutex("lock"))
	l, err := openLock(filepath.Join(dir, "lock.lock"), os.O_RDWR)
	must(t, err)
	defer l.file.Close()
	future := time.Now().Add(time.Hour).UnixNano()
	if ok, err := lockRecord(l.file, recordType(backend.Exclusive), future); !ok {
		t.Fatal("no ticket:", err)
	}
	call := lockLater(t.Context(), newClient(t, dir).Mutex("lock"))
	waitForQueue(t, dir, 2)
	if _, found, err := findRecord(l.file, recordType(backend.Exclusive), future+1, lastTicket); !found {
		t.Error("a newcomer overtook by the clock:", err)
	}
	unlockRecord(l.file, future)
	mustUnlock(t, holder)
	mustUnlock(t, call.get(t))
}

func TestReadersShare(t *testing.T) {
	dir := t.TempDir()
	writer := mustLock(t, newClient(t, dir).Mutex("lock"))
	var calls []*call
	for i, c := range newClients(t, dir, 20) {
		calls = append(calls, lockLater(t.Context(), c.RWMutex("lock").RLocker()))
		waitForQueue(t, dir, i+1)
	}
	mustUnlock(t, writer)
	var leases []*dlock.Lease
	for _, call := range calls {
		leases = append(leases, call.get(t))
	}
	first := leases[0].Token()
	if first <= writer.Token() {
		t.Errorf("readers' token %d after the writer's %d", first, writer.Token())
	}
	for _, lease := range leases {
		if lease.Token() != first {
			t.Errorf("token %d in the phase of %d", lease.Token(), first)
		}
		mustUnlock(t, lease)
	}
	next := mustLock(t, newClient(t, dir).RWMutex("lock").RLocker())
	if next.Token() <= first {
		t.Errorf("token %d in the phase after %d", next.Token(), first)
	}
	mustUnlock(t, next)
}

func TestWriterNotStarved(t *testing.T) {
	dir := t.TempDir()
	clients := newClients(t, dir, 4)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var mu sync.Mutex
	inside := 0
	// The last reader stays until another comes, or cannot because it queues
	// behind the writer.
	mayLeave := func() bool {
		mu.Lock()
		defer mu.Unlock()
		if inside == 1 && queue(t, dir) < 2 && ctx.Err() == nil {
			return false
		}
		inside--
		return true
	}
	var readers sync.WaitGroup
	for _, c := range clients[1:] {
		readers.Go(func() {
			for ctx.Err() == nil {
				lease := mustLock(t, c.RWMutex("lock").RLocker())
				mu.Lock()
				inside++
				mu.Unlock()
				eventually(t, "another reader", mayLeave)
				mustUnlock(t, lease)
			}
		})
	}
	for range 20 {
		mustUnlock(t, mustLock(t, clients[0].Mutex("lock")))
	}
	stop()
	readers.Wait()
}

func TestReaderNotStarved(t *testing.T) {
	dir := t.TempDir()
	clients := newClients(t, dir, 4)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var writers sync.WaitGroup
	for _, c := range clients[1:] {
		writers.Go(func() {
			for ctx.Err() == nil {
				lease := mustLock(t, c.Mutex("lock"))
				eventually(t, "a full queue", func() bool { return queue(t, dir) >= 2 || ctx.Err() != nil })
				mustUnlock(t, lease)
			}
		})
	}
	for range 20 {
		mustUnlock(t, mustLock(t, clients[0].RWMutex("lock").RLocker()))
	}
	stop()
	writers.Wait()
}

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

func TestDowngrade(t *testing.T) {
	dir := t.TempDir()
	c := newClients(t, dir, 4)
	lease := mustLock(t, c[0].Mutex("lock"))
	reader := lockLater(t.Context(), c[1].RWMutex("lock").RLocker())
	waitForQueue(t, dir, 1)
	writer := lockLater(t.Context(), c[2].Mutex("lock"))
	waitForQueue(t, dir, 2)
	late := lockLater(t.Context(), c[3].RWMutex("lock").RLocker())
	waitForQueue(t, dir, 3)
	must(t, lease.Downgrade(t.Context()))
	second := reader.get(t)
	if second.Token() != lease.Token() {
		t.Errorf("tokens %d and %d in one phase", second.Token(), lease.Token())
	}
	if !writer.waiting() || !late.waiting() {
		t.Error("downgrade let in the writer, or who came after it")
	}
	mustUnlock(t, lease)
	mustUnlock(t, second)
	mustUnlock(t, writer.get(t))
	mustUnlock(t, late.get(t))
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

func TestDowngradeLetsNoWriterIn(t *testing.T) {
	dir := t.TempDir()
	c := newClients(t, dir, 4)
	var exclusive atomic.Int32 // grows with every exclusive hold
	ctx, stop := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	for _, c := range c[1:] {
		writers.Go(func() {
			for ctx.Err() == nil {
				lease, err := c.Mutex("lock").TryLock(ctx)
				if err == nil {
					exclusive.Add(1)
					mustUnlock(t, lease)
				}
			}
		})
	}
	for range 300 {
		lease := mustLock(t, c[0].Mutex("lock"))
		before := exclusive.Load()
		must(t, lease.Downgrade(context.Background()))
		if exclusive.Load() != before {
			t.Error("a writer came in between")
		}
		mustUnlock(t, lease)
	}
	stop()
	writers.Wait()
}

func TestCancelAtGrant(t *testing.T) {
	dir := t.TempDir()
	c := newClients(t, dir, 2)
	granted := 0
	for i := range 1000 {
		lease := mustLock(t, c[0].Mutex("lock"))
		ctx, cancel := context.WithCancel(t.Context())
		call := lockLater(ctx, c[1].Mutex("lock"))
		if i%2 == 0 {
			waitForQueue(t, dir, 1)
		}
		go cancel()
		mustUnlock(t, lease)
		<-call.done
		switch {
		case call.err == nil && call.lease != nil:
			granted++
			mustUnlock(t, call.lease)
		case call.lease != nil || !errors.Is(call.err, context.Canceled):
			t.Fatalf("lease %v, error %v", call.lease, call.err)
		}
		if lease, err := c[0].Mutex("lock").TryLock(t.Context()); err != nil {
			t.Fatalf("round %d: not free afterwards: %v", i, err)
		} else {
			mustUnlock(t, lease)
		}
	}
	t.Logf("%d of 1000 granted", granted)
}

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
		if g, err := l.take(mode); g != nil || !errors.Is(err, errReplaced) {
			t.Errorf("%v lock of a deleted file: %v, %v", mode, g, err)
		}
	}
}

func TestReleaseAgain(t *testing.T) {
	b, err := New(&Options{Dir: t.TempDir()})
	must(t, err)
	defer b.Close(t.Context())
	r := backend.Request{Name: "lock", ID: backend.ID{Client: "a", Seq: 1}, Mode: backend.Exclusive, TTL: time.Second}
	first, err := b.Acquire(t.Context(), r)
	must(t, err)
	must(t, b.Release(t.Context(), first))
	r.ID.Seq = 2
	second, err := b.Acquire(t.Context(), r)
	must(t, err)
	if err := b.Release(t.Context(), first); !errors.Is(err, backend.ErrLost) {
		t.Errorf("second release: %v", err)
	}
	b.Renew(t.Context(), []*backend.Hold{first, second}, func(h *backend.Hold, err error) {
		if errors.Is(err, backend.ErrLost) != (h == first) {
			t.Errorf("renewal of %v: %v", h.ID, err)
		}
	})
	must(t, b.Release(t.Context(), second))
}

func TestCloseLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	_ = openFiles(t) // the runtime's own poller stays
	warm := newNotifier()
	warm.file.Close()
	<-warm.done
	files, goroutines := openFiles(t), runtime.NumGoroutine()
	for range 3 {
		c := newClients(t, dir, 3)
		_ = mustLock(t, c[0].Mutex("lock"))
		_ = mustLock(t, c[0].RWMutex("other").RLocker())
		var calls []*call
		for i, c := range c[1:] {
			calls = append(calls, lockLater(t.Context(), c.Mutex("lock")))
			waitForQueue(t, dir, i+1)
		}
		for _, c := range c[1:] {
			must(t, c.Close(t.Context()))
		}
		for _, call := range calls {
			if <-call.done; !errors.Is(call.err, dlock.ErrClosed) {
				t.Errorf("waiter of a closed client: %v", call.err)
			}
		}
		must(t, c[0].Close(t.Context()))
		must(t, c[0].Close(t.Context()))
		if n := queue(t, dir); n != 0 {
			t.Errorf("%d left in the queue", n)
		}
	}
	eventually(t, "files and goroutines as before", func() bool {
		return openFiles(t) == files && runtime.NumGoroutine() <= goroutines
	})
	left, err := os.ReadDir(dir)
	must(t, err)
	if len(left) != 2 {
		t.Errorf("left behind: %v", left)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(fds)
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

func TestDirectoryComesBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	c := newClient(t, dir)
	must(t, os.RemoveAll(dir))
	mustUnlock(t, mustLock(t, c.Mutex("lock")))
	must(t, os.RemoveAll(dir))
	lease, err := c.Mutex("lock").TryLock(t.Context())
	must(t, err)
	mustUnlock(t, lease)
}

func BenchmarkLockUnlock(b *testing.B) {
	c, err := dlock.Open(b.Context(), "file://"+b.TempDir(), nil)
	must(b, err)
	defer c.Close(b.Context())
	m := c.Mutex("lock")
	for b.Loop() {
		lease, err := m.Lock(b.Context())
		must(b, err)
		must(b, lease.Unlock(b.Context()))
	}
}

func BenchmarkHandOver(b *testing.B) {
	dir := b.TempDir()
	var done atomic.Int64
	var all sync.WaitGroup
	for range 16 {
		c, err := dlock.Open(b.Context(), "file://"+dir, nil)
		must(b, err)
		defer c.Close(b.Context())
		all.Go(func() {
			for done.Add(1) <= int64(b.N) {
				lease, err := c.Mutex("lock").Lock(b.Context())
				if err == nil {
					err = lease.Unlock(b.Context())
				}
				if err != nil {
					b.Error(err)
				}
			}
		})
	}
	all.Wait()
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

// Who draws a token asks nobody, and the next holder has a greater one, whatever has
// become of the one that drew.
func TestDrawnTokens(t *testing.T) {
	dir := t.TempDir()
	one, two := newBackend(t, dir), newBackend(t, dir)
	r := backend.Request{Name: "lock", ID: backend.ID{Client: "a", Seq: 1}, Mode: backend.Exclusive, TTL: time.Second}
	for name, end := range map[string]func(*backend.Hold){
		"released": func(h *backend.Hold) { must(t, one.Release(t.Context(), h)) },
		"died":     func(h *backend.Hold) { h.State.(*grant).file.Close() },
		"downgraded": func(h *backend.Hold) {
			must(t, one.Downgrade(t.Context(), h))
			must(t, one.Release(t.Context(), h))
		},
	} {
		h, err := one.Acquire(t.Context(), r)
		must(t, err)
		for uint64(time.Now().UnixMicro()) < h.Token+1000 { // who died has left it ahead of the clock
			time.Sleep(time.Millisecond)
		}
		last := h.Token
		for range 100 {
			token, ok := one.Transfer(h)
			if !ok || token <= last {
				t.Fatalf("%s: drew %d after %d: %v", name, token, last, ok)
			}
			last = token
		}
		h.State.(*grant).mu.Lock() // a renewal that takes long
		if _, ok := one.Transfer(h); !ok {
			t.Errorf("%s: no token during a renewal", name)
		}
		h.State.(*grant).mu.Unlock()
		end(h)
		next, err := two.Acquire(t.Context(), r)
		must(t, err)
		if next.Token <= last {
			t.Errorf("%s: token %d came after %d", name, next.Token, last)
		}
		must(t, two.Release(t.Context(), next))
	}
	h, err := one.Acquire(t.Context(), r)
	must(t, err)
	for end := time.Now().Add(20 * time.Millisecond); time.Now().Before(end); {
		if token, ok := one.Transfer(h); ok && token >= uint64(time.Now().UnixMicro()) {
			t.Fatalf("token %d is ahead of the clock", token)
		}
	}
	must(t, one.Release(t.Context(), h))
}

func newBackend(t *testing.T, dir string) *Backend {
	t.Helper()
	b, err := New(&Options{Dir: dir})
	must(t, err)
	t.Cleanup(func() { must(t, b.Close(context.Background())) })
	return b
}
