package etcd_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/etcd"
)

// A watcher notes which keys of locks are watched, and holds that up until free
// is closed.
type watcher struct {
	clientv3.Watcher
	below string
	free  chan struct{}

	mu  sync.Mutex
	ops []clientv3.Op
}

func (w *watcher) Watch(ctx context.Context, key string, o ...clientv3.OpOption) clientv3.WatchChan {
	if strings.HasPrefix(key, w.below) {
		w.mu.Lock()
		w.ops = append(w.ops, clientv3.OpGet(key, o...))
		w.mu.Unlock()
		<-w.free
	}
	return w.Watcher.Watch(ctx, key, o...)
}

func (w *watcher) seen() []clientv3.Op {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ops
}

// openWatched opens a client whose watches are known.
func openWatched(t *testing.T) (*dlock.Client, *watcher) {
	t.Helper()
	cli := raw(t, shared.Addr())
	w := &watcher{Watcher: cli.Watcher, below: prefix(t) + "/l/", free: make(chan struct{})}
	cli.Watcher = w
	c, err := dlock.New(etcd.New(cli, &etcd.Options{Prefix: prefix(t)}), &dlock.Options{TTL: time.Minute})
	must(t, err)
	t.Cleanup(func() { c.Close(context.Background()) })
	return c, w
}

// TestWatchBeginsWithThePresent looks at what a waiter asks for. A watch from a
// past revision is served every 100 ms only.
func TestWatchBeginsWithThePresent(t *testing.T) {
	lease := locked(t, open(t, time.Minute, shared.Addr()).Mutex("a"))
	c, w := openWatched(t)
	waiter := start(t, timed(t), c.Mutex("a").Lock)
	eventually(t, "the waiter watches", func() bool { return len(w.seen()) > 0 })
	close(w.free)
	must(t, lease.Unlock(timed(t)))
	must(t, waiter.granted().Unlock(timed(t)))
	for _, op := range w.seen() {
		if op.Rev() != 0 {
			t.Errorf("a watch from revision %d on", op.Rev())
		}
		if len(op.RangeBytes()) != 0 {
			t.Error("a watch of more than one key")
		}
	}
}

// TestReleaseBeforeTheWatch frees the lock after the waiter has joined the queue
// and before the server knows of its watch, which begins too late to see that.
func TestReleaseBeforeTheWatch(t *testing.T) {
	lease := locked(t, open(t, time.Minute, shared.Addr()).Mutex("a"))
	c, w := openWatched(t)
	waiter := start(t, timed(t), c.Mutex("a").Lock)
	eventually(t, "the waiter is about to watch", func() bool { return len(w.seen()) > 0 })
	must(t, lease.Unlock(timed(t)))
	close(w.free)
	must(t, waiter.granted().Unlock(timed(t)))
}

// TestOneWatcherPerKey has more clients wait than a request to join is told of.
// Each waits for the one before it, on the way in and after a waiter has left.
func TestOneWatcherPerKey(t *testing.T) {
	const waiters = 150
	cli, admin := raw(t, shared.Addr()), raw(t, shared.Addr())
	w := &watcher{Watcher: cli.Watcher, below: prefix(t) + "/l/", free: make(chan struct{})}
	close(w.free)
	cli.Watcher = w
	ask := backend.Request{Name: "a", ID: backend.ID{Client: "c", Seq: 1}, Mode: backend.Exclusive, TTL: time.Minute, Wait: true}
	type client struct {
		*etcd.Backend
		cancel context.CancelFunc
		done   chan *backend.Hold
	}
	var clients []client
	for i := range waiters + 1 {
		ctx, cancel := context.WithCancel(timed(t))
		c := client{etcd.New(cli, &etcd.Options{Prefix: prefix(t)}), cancel, make(chan *backend.Hold, 1)}
		t.Cleanup(func() { c.Close(context.Background()) })
		go func() {
			h, _ := c.Acquire(ctx, ask)
			c.done <- h
		}()
		queued(t, admin, i+1)
		clients = append(clients, c)
	}
	eventually(t, "all watch", func() bool { return len(w.seen()) >= waiters })
	for key, n := range w.watched() {
		if n > 1 {
			t.Errorf("%d waiters watch %s", n, key)
		}
	}

	const left = waiters / 2
	clients[left].cancel()
	<-clients[left].done
	queued(t, admin, waiters)
	eventually(t, "its follower watches another key", func() bool { return len(w.seen()) == waiters+1 })

	before := len(w.seen())
	must(t, clients[0].Release(timed(t), <-clients[0].done))
	h := <-clients[1].done
	if h == nil {
		t.Fatal("the next in line was refused")
	}
	if n := len(w.seen()) - before; n != 0 {
		t.Errorf("one release made %d waiters watch anew", n)
	}
	must(t, clients[1].Release(timed(t), h))
	for _, c := range clients {
		c.cancel()
	}
}

// watched returns how often each key has been watched.
func (w *watcher) watched() map[string]int {
	n := make(map[string]int)
	for _, op := range w.seen() {
		n[string(op.KeyBytes())]++
	}
	return n
}
