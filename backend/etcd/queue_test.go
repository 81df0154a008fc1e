package etcd_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/etcd"
	"github.com/dlock-go/dlock/internal/faultnet"
	"github.com/dlock-go/dlock/internal/server"
)

var waiters = flag.Int("waiters", 1000, "how many wait for the lock of TestLongQueue")

// A line is a long queue for one lock: its waiters belong to a few backends on one
// connection.
type line struct {
	proxy   *faultnet.Proxy
	client  *clientv3.Client
	watcher *watcher
	waiting []*placed
	granted chan *placed
	refused atomic.Pointer[error] // the last of those that were not granted the lock
}

// A placed waiter is one call of Acquire.
type placed struct {
	backend *etcd.Backend
	cancel  context.CancelFunc
	notice  *notice
	hold    *backend.Hold // once it is granted
}

var lineRequest = backend.Request{Name: "a", ID: backend.ID{Client: "c", Seq: 1}, Mode: backend.Exclusive, TTL: 10 * time.Minute, Wait: true}

// A notice is closed when its request is queued.
type notice struct {
	once   sync.Once
	queued chan struct{}
}

func (n *notice) Queued()    { n.once.Do(func() { close(n.queued) }) }
func (n *notice) Answered()  { n.Queued() } // behind one of its own client
func (n *notice) Lost(error) {}
func (n *notice) Wanted()    {}

const together = 64

// newLine returns a line at addr that is empty.
func newLine(t *testing.T, addr string) *line {
	q := &line{proxy: proxied(t, addr), granted: make(chan *placed, *waiters)}
	q.client = raw(t, q.proxy.Addr())
	q.watcher = &watcher{Watcher: q.client.Watcher, below: prefix(t) + "/l/", free: make(chan struct{})}
	close(q.watcher.free)
	q.client.Watcher = q.watcher
	return q
}

// add has n more wait, from several backends. So many come at a time as a busy machine
// lets in.
func (q *line) add(t *testing.T, n, backends int) {
	t.Helper()
	for range backends {
		b := etcd.New(q.client, &etcd.Options{Prefix: prefix(t)})
		for range n / backends {
			q.waiting = append(q.waiting, q.join(b))
			if i := len(q.waiting) - together; i >= 0 {
				within(t, "one is in the queue", q.waiting[i].notice.queued)
			}
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			_ = b.Close(ctx) // the server is gone by then
		})
	}
	admin := raw(t, q.proxy.Addr())
	slowly(t, "all are in the queue", func() bool { return count(t, admin) == len(q.waiting)+1 })
	slowly(t, "all watch", func() bool { return len(q.watcher.seen()) >= len(q.waiting) })
	q.settle(t)
}

func (q *line) join(b *etcd.Backend) *placed {
	ctx, cancel := context.WithCancel(context.Background())
	w := &placed{backend: b, cancel: cancel, notice: &notice{queued: make(chan struct{})}}
	request := lineRequest
	request.Observer = w.notice
	go func() {
		var err error
		if w.hold, err = b.Acquire(ctx, request); w.hold != nil {
			q.granted <- w
		} else if ctx.Err() == nil && !errors.Is(err, backend.ErrClosed) {
			q.refused.Store(&err)
		}
	}()
	return w
}

// count returns how many keys there are in the queue.
func count(t *testing.T, admin *clientv3.Client) int {
	t.Helper()
	reply, err := admin.Get(timed(t), prefix(t)+"/l/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	must(t, err)
	return int(reply.Count)
}

// slowly is eventually for what takes the longer the more there are.
func slowly(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(limit + time.Duration(*waiters)*30*time.Millisecond); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// settle waits until the line has asked nothing for a while.
func (q *line) settle(t *testing.T) { settle(t, q.proxy) }

func settle(t *testing.T, p *faultnet.Proxy) {
	t.Helper()
	last, since := p.Stats(), time.Now()
	slowly(t, "nothing is asked", func() bool {
		now := p.Stats()
		if now.Requests != last.Requests || now.Owed > 0 {
			last, since = now, time.Now()
		}
		return time.Since(since) > 300*time.Millisecond
	})
}

// TestLongQueue has many more wait for one lock than a request to join is told of. Each
// watches the key before its own and no other, on the way in and after a change; they
// send nothing while nothing happens; and to join, to check, to try and to leave costs the
// same however many there are.
func TestLongQueue(t *testing.T) {
	const backends, few = 10, 100
	n := max(*waiters/backends*backends, 2*few)
	s := server.Start(t, kind())
	admin := raw(t, s.Addr())
	first := etcd.New(raw(t, s.Addr()), &etcd.Options{Prefix: prefix(t)})
	held, err := first.Acquire(timed(t), lineRequest)
	must(t, err)
	q := newLine(t, s.Addr())
	t.Cleanup(func() { must(t, s.Kill()) })
	q.add(t, few, 2)
	short := measureQueue(t, s.Addr())
	q.add(t, n-few, backends)
	if n := q.watcher.greatest(); n > 2 {
		t.Errorf("%d waiters watch one key on the way in", n)
	}

	const idle = 2 * time.Second
	if sent := cost(t, q.proxy, func() { time.Sleep(idle) }); sent > int64(n/100) {
		t.Errorf("%d idle waiters sent %d requests in %v", n, sent, idle)
	}
	for what, c := range measureQueue(t, s.Addr()) {
		most := map[string]price{"join": {4, 12_000}, "check": {1, 600}, "try": {1, 600}}[what] // with what HTTP adds
		if c.requests > most.requests || c.bytes > most.bytes {
			t.Errorf("%s: %+v, want at most %+v", what, c, most)
		}
		const some = 150 // HTTP adds, and the names of keys have some digits more
		if c.requests != short[what].requests || c.bytes > short[what].bytes+some {
			t.Errorf("%s: %+v with %d in the queue, %+v with %d", what, short[what], few, c, n)
		}
	}

	before := q.proxy.Stats()
	q.waiting[n/2].cancel()
	slowly(t, "one has left", func() bool { return count(t, admin) == n })
	q.settle(t)
	after := q.proxy.Stats()
	t.Logf("one that left cost %d requests and %d bytes", after.Requests-before.Requests, after.ToClient-before.ToClient)
	if after.Requests-before.Requests > 6 || after.ToClient-before.ToClient > 6000 {
		t.Errorf("one that left cost %d requests and %d bytes", after.Requests-before.Requests, after.ToClient-before.ToClient)
	}
	if n := q.watcher.greatest(); n > 2 { // who left, and who stands in its place
		t.Errorf("%d waiters watch one key", n)
	}

	seen := len(q.watcher.seen())
	must(t, first.Release(timed(t), held))
	for range 20 {
		select {
		case w := <-q.granted:
			must(t, w.backend.Release(timed(t), w.hold))
		case <-time.After(limit):
			t.Fatal("nobody is granted the lock")
		}
	}
	if err := q.refused.Load(); err != nil {
		t.Errorf("one that waited was refused: %v", *err)
	}
	if more := len(q.watcher.seen()) - seen; more > 1 { // if one stood behind who left
		t.Errorf("20 hand-overs made %d waiters watch anew", more)
	}
}

// A price is what something costs.
type price struct{ requests, bytes int64 } // bytes of the answers

// measureQueue returns what it costs to join the queue at its end, the check of a waiter,
// and a try.
func measureQueue(t *testing.T, addr string) map[string]price {
	t.Helper()
	const repeats = 20
	admin, p := raw(t, addr), proxied(t, addr)
	n := count(t, admin)
	b := etcd.New(raw(t, p.Addr()), &etcd.Options{Prefix: prefix(t)})
	try := lineRequest
	try.Wait = false
	_, err := b.Acquire(timed(t), try) // makes a session
	is(t, err, backend.ErrHeld)
	costs := make(map[string]price)
	measure := func(what string, repeats int64, do func()) {
		settle(t, p)
		before := p.Stats()
		do()
		settle(t, p)
		after := p.Stats()
		costs[what] = price{(after.Requests - before.Requests) / repeats, (after.ToClient - before.ToClient) / repeats}
		t.Logf("%d in the queue: %s: %+v", n, what, costs[what])
	}
	wait := func(b *etcd.Backend) (leave func()) {
		ctx, cancel := context.WithCancel(context.Background())
		left := make(chan struct{})
		go func() { defer close(left); _, _ = b.Acquire(ctx, lineRequest) }()
		slowly(t, "one more is in the queue", func() bool { return count(t, admin) == n+1 })
		return func() {
			cancel()
			within(t, "it has left", left)
			slowly(t, "its key is gone", func() bool { return count(t, admin) == n })
		}
	}
	measure("try", repeats, func() {
		for range repeats {
			_, err := b.Acquire(timed(t), try)
			is(t, err, backend.ErrHeld)
		}
	})
	var leave func()
	measure("join", 1, func() { leave = wait(b); slowly(t, "it watches", func() bool { return p.Stats().Owed == 0 }) })
	leave()
	must(t, b.Close(timed(t)))

	p = proxied(t, addr)
	often := etcd.New(raw(t, p.Addr()), &etcd.Options{Prefix: prefix(t)})
	etcd.SetCheckEvery(often, 50*time.Millisecond)
	leave = wait(often)
	slowly(t, "it watches, and nothing but checks follows", func() bool {
		before := p.Stats()
		slowly(t, "some checks", func() bool { now := p.Stats(); return now.Requests >= before.Requests+repeats && now.Owed == 0 })
		after := p.Stats()
		costs["check"] = price{1, (after.ToClient - before.ToClient) / (after.Requests - before.Requests)}
		return costs["check"].bytes < 600
	})
	t.Logf("%d in the queue: check: %+v", n, costs["check"])
	leave()
	must(t, often.Close(timed(t)))
	return costs
}

// TestCrowdWaitsItsTurn asks for two hundred locks at once. Few requests are under way, so
// that the last of them is not answered too late.
func TestCrowdWaitsItsTurn(t *testing.T) {
	const n, most = 200, 128
	var underWay, greatest atomic.Int64
	c := raw(t, shared.Addr())
	c.KV = &hookedKV{c.KV, func(then []clientv3.Op, send func() (*clientv3.TxnResponse, error)) (*clientv3.TxnResponse, error) {
		now := underWay.Add(1)
		defer underWay.Add(-1)
		for seen := greatest.Load(); now > seen && !greatest.CompareAndSwap(seen, now); seen = greatest.Load() {
		}
		return send()
	}}
	b := etcd.New(c, &etcd.Options{Prefix: prefix(t)})
	t.Cleanup(func() { must(t, b.Close(timed(t))) })
	holds := make([]*backend.Hold, n)
	var all sync.WaitGroup
	for i := range holds {
		all.Go(func() {
			r := lineRequest
			r.Name = fmt.Sprint(i)
			ctx := timed(t)
			h, err := b.Acquire(ctx, r)
			for err != nil && ctx.Err() == nil { // a busy machine answers nobody for seconds
				h, err = b.Acquire(ctx, r)
			}
			if err != nil {
				t.Error(err)
			}
			holds[i] = h
		})
	}
	all.Wait()
	for _, h := range holds {
		if h == nil {
			continue
		}
		all.Go(func() {
			if err := b.Release(timed(t), h); err != nil && !errors.Is(err, backend.ErrUnavailable) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := greatest.Load(); got > most {
		t.Errorf("%d requests were under way", got)
	}
}

// TestLongQueueInOrder has readers and writers of several clients queue, so many that they
// learn from the tails of the queue who is ahead, and the tails vanish now and then. Each
// is granted the lock once everybody before it that it conflicts with has released it.
func TestLongQueueInOrder(t *testing.T) {
	t.Parallel()
	const n = 150
	cli := raw(t, shared.Addr())
	tails := prefix(t) + "/t/a/"
	var backends []*etcd.Backend
	for range 3 {
		b := etcd.New(cli, &etcd.Options{Prefix: prefix(t)})
		t.Cleanup(func() { must(t, b.Close(timed(t))) })
		backends = append(backends, b)
	}
	first, err := backends[0].Acquire(timed(t), lineRequest)
	must(t, err)
	requests, released := make([]backend.Request, n), make([]atomic.Bool, n)
	var all sync.WaitGroup
	for i := range n {
		queued := &notice{queued: make(chan struct{})}
		requests[i] = lineRequest
		requests[i].Observer = queued
		if i%5 > 1 {
			requests[i].Mode = backend.Shared
		}
		all.Go(func() {
			b := backends[i%len(backends)]
			h, err := b.Acquire(timed(t), requests[i])
			if err != nil {
				t.Errorf("%d: %v", i, err)
				return
			}
			for j := range i {
				if (requests[i].Mode == backend.Exclusive || requests[j].Mode == backend.Exclusive) && !released[j].Load() {
					t.Errorf("%d has the lock while %d waits or holds", i, j)
				}
			}
			time.Sleep(time.Duration(i%3) * time.Millisecond)
			released[i].Store(true)
			if err := b.Release(timed(t), h); err != nil {
				t.Errorf("%d: %v", i, err)
			}
		})
		within(t, "one is in the queue", queued.queued)
		switch i {
		case 60:
			deleted, err := cli.Delete(timed(t), tails+"r")
			if must(t, err); deleted.Deleted != 1 {
				t.Error("the queue has no tail")
			}
		case 100:
			_, err := cli.Delete(timed(t), tails+"w")
			must(t, err)
		}
	}
	must(t, backends[0].Release(timed(t), first))
	all.Wait()
	lease, err := backends[1].Acquire(timed(t), lineRequest)
	must(t, err)
	must(t, backends[1].Release(timed(t), lease))
	eventually(t, "the tails are gone", func() bool {
		left, err := cli.Get(timed(t), tails, clientv3.WithPrefix())
		must(t, err)
		return left.Count == 0
	})
}

// TestTryLockOfALongQueue finds a lock free whose queue has tails, and whose first keys are
// those of writers that have handed it over.
func TestTryLockOfALongQueue(t *testing.T) {
	cli := raw(t, shared.Addr())
	b := etcd.New(cli, &etcd.Options{Prefix: prefix(t)})
	t.Cleanup(func() { must(t, b.Close(timed(t))) })
	try := lineRequest
	try.Wait = false
	for i := range 10 {
		_, err := cli.Put(timed(t), fmt.Sprintf("%s/l/a/w/%d", prefix(t), i), "-")
		must(t, err)
	}
	for _, tail := range []string{"w", "r"} {
		_, err := cli.Put(timed(t), prefix(t)+"/t/a/"+tail, "")
		must(t, err)
	}
	for _, m := range []backend.Mode{backend.Shared, backend.Exclusive} {
		try.Mode = m
		h, err := b.Acquire(timed(t), try)
		must(t, err)
		if m == backend.Exclusive {
			_, err = b.Acquire(timed(t), try)
			is(t, err, backend.ErrHeld)
		}
		must(t, b.Release(timed(t), h))
	}
	left, err := cli.Get(timed(t), prefix(t)+"/t/a/", clientv3.WithPrefix())
	must(t, err)
	if left.Count > 0 {
		t.Errorf("a writer that nobody follows has left %d tails", left.Count)
	}
	_, err = cli.Put(timed(t), prefix(t)+"/l/a/w/5", "+")
	must(t, err)
	_, err = b.Acquire(timed(t), try)
	is(t, err, backend.ErrHeld)
}

// TestGoneTail joins a long queue behind a request that has left it.
func TestGoneTail(t *testing.T) {
	t.Parallel()
	admin, p := raw(t, shared.Addr()), proxied(t, shared.Addr())
	b := etcd.New(raw(t, p.Addr()), &etcd.Options{Prefix: prefix(t)})
	t.Cleanup(func() { must(t, b.Close(timed(t))) })
	held, err := b.Acquire(timed(t), lineRequest)
	must(t, err)
	q := newLine(t, shared.Addr())
	q.add(t, 40, 1) // they make the tails
	q.add(t, 1, 1)  // the tail names it
	leave := func(some []*placed, left int) {
		for _, w := range some {
			w.cancel()
		}
		slowly(t, "some have left", func() bool { return count(t, admin) == left })
	}
	leave(q.waiting[40:], 41)
	granted := make(chan error, 1)
	go func() {
		h, err := b.Acquire(timed(t), lineRequest)
		if err == nil {
			err = b.Release(timed(t), h)
		}
		granted <- err
	}()
	slowly(t, "one more is in the queue", func() bool { return count(t, admin) == 42 })
	settle(t, p)
	leave(q.waiting[:40], 2)
	must(t, b.Release(timed(t), held))
	select {
	case err := <-granted:
		must(t, err)
	case <-time.After(limit):
		t.Fatal("who is alone in the queue is not granted the lock")
	}
}
