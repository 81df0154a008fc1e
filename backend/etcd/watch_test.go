package etcd_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend/etcd"
)

// A watcher notes which keys of locks are watched, and holds that up until free
// is closed.
type watcher struct {
	clientv3.Watcher
	below string
	free  chan struct{}

	mu   sync.Mutex
	ops  []clientv3.Op
	now  map[string]int // watches of each key
	most int            // of one key at a time

	streams map[string]int // watches that are being made, by stream
}

func (w *watcher) Watch(ctx context.Context, key string, o ...clientv3.OpOption) clientv3.WatchChan {
	if strings.HasPrefix(key, w.below) {
		w.mu.Lock()
		w.ops = append(w.ops, clientv3.OpGet(key, o...))
		if w.now == nil {
			w.now = make(map[string]int)
		}
		w.now[key]++
		w.most = max(w.most, w.now[key])
		w.mu.Unlock()
		context.AfterFunc(ctx, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.now[key]--
		})
		w.making(ctx, 1)
		defer w.making(ctx, -1)
		<-w.free
	}
	return w.Watcher.Watch(ctx, key, o...)
}

// making counts a watch that is being made.
func (w *watcher) making(ctx context.Context, n int) {
	md, _ := metadata.FromOutgoingContext(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.streams == nil {
		w.streams = make(map[string]int)
	}
	w.streams[fmt.Sprint(md)] += n
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
// and before the server knows of its watch, which begins too late to see that. The TTL is
// so long that the key is not deleted meanwhile.
func TestReleaseBeforeTheWatch(t *testing.T) {
	lease := locked(t, open(t, 10*time.Minute, shared.Addr()).Mutex("a"))
	c, w := openWatched(t)
	waiter := start(t, timed(t), c.Mutex("a").Lock)
	eventually(t, "the waiter is about to watch", func() bool { return len(w.seen()) > 0 })
	must(t, lease.Unlock(timed(t)))
	close(w.free)
	must(t, waiter.granted().Unlock(timed(t)))
}

// greatest is how many watches one key has had at a time.
func (w *watcher) greatest() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.most
}

// TestManyWatchesAtOnce has more requests wait than may be under way while no watch is made.
// Others of the client go on, and no watch waits in the client library for another: that
// makes those of a stream one after the other.
func TestManyWatchesAtOnce(t *testing.T) {
	t.Parallel()
	const n = 200
	other := open(t, 10*time.Minute, shared.Addr())
	c, w := openWatched(t)
	var leases []*dlock.Lease
	var waiters []*call
	for i := range n {
		leases = append(leases, locked(t, other.Mutex(fmt.Sprint(i))))
		waiters = append(waiters, start(t, timed(t), c.Mutex(fmt.Sprint(i)).Lock))
	}
	free := sync.OnceFunc(func() { close(w.free) })
	defer free()
	eventually(t, "watches are being made", func() bool { return len(w.seen()) == etcd.MaxStreams })
	must(t, locked(t, c.Mutex("own")).Unlock(timed(t)))
	w.mu.Lock()
	for stream, making := range w.streams {
		if making > 1 {
			t.Errorf("%d watches are being made on %s", making, stream)
		}
	}
	w.mu.Unlock()
	free()
	for i, l := range leases {
		must(t, l.Unlock(timed(t)))
		must(t, waiters[i].granted().Unlock(timed(t)))
	}
}
