package zk_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/zk"
)

// A longQueue is the queue of a lock, in which requests announce themselves.
type longQueue struct {
	t    *testing.T
	op   *gozk.Conn
	most int32        // children without announcements
	last backend.Mode // of those who joined
}

// oldRequests has n requests join the queue as clients do that know nothing of
// announcements.
func (q *longQueue) oldRequests(n int) {
	q.t.Helper()
	dir, acl := rootOf(q.t)+"/m", gozk.WorldACL(gozk.PermAll)
	for from := 0; from < n; from += 100 {
		var ops []any
		for i := from; i < min(from+100, n); i++ {
			create := &gozk.CreateRequest{Path: fmt.Sprintf("%s/%032x-w-", dir, rand.Uint64()), Acl: acl, Flags: gozk.FlagEphemeralSequential}
			ops = append(ops, create, &gozk.SetDataRequest{Path: dir, Version: -1})
		}
		_, err := q.op.Multi(ops...)
		must(q.t, err)
	}
}

func (q *longQueue) endOldRequests() {
	q.t.Helper()
	for _, name := range nodes(q.t, q.op, "m") {
		if strings.HasPrefix(name, strings.Repeat("0", 16)) { // as no other
			must(q.t, q.op.Delete(rootOf(q.t)+"/m/"+name, -1))
		}
	}
}

// announced lists the announcements.
func (q *longQueue) announced() []string {
	q.t.Helper()
	names, _, err := q.op.Children(rootOf(q.t) + "/.dlock")
	if err != nil && !errors.Is(err, gozk.ErrNoNode) {
		q.t.Fatal(err)
	}
	return names
}

// A joined request waits at the end of a long queue.
type joined struct {
	tape  *tape
	bytes int64
	node  string
	leave context.CancelFunc
	done  chan struct{} // closed when hold or err is set
	hold  *backend.Hold
	err   error
	b     *zk.Backend
}

func (j *joined) hasEnded() bool {
	select {
	case <-j.done:
		return true
	default:
		return false
	}
}

// join has a client of its own join the queue, until it watches whom it waits for.
func (q *longQueue) join(m backend.Mode) *joined {
	t := q.t
	t.Helper()
	p := proxyTo(t, shared.Addr())
	b, err := zk.Connect(testContext(t), []string{p.Addr()}, &zk.Options{Root: rootOf(t), SessionTimeout: time.Minute, Standalone: true})
	must(t, err)
	t.Cleanup(func() { must(t, b.Close(context.Background())) })
	zk.SetManyChildren(b, q.most)
	ctx, leave := context.WithCancel(testContext(t))
	j := &joined{tape: record(p), leave: leave, done: make(chan struct{}), b: b}
	before := p.Stats()
	go func() {
		defer close(j.done)
		j.hold, j.err = b.Acquire(ctx, backend.Request{Name: "m", Mode: m, TTL: time.Minute, Wait: true})
	}()
	watches := 2 // of a node and its signal
	if m == backend.Exclusive && q.last == backend.Shared {
		watches = 1
	}
	eventually(t, "it watches", func() bool {
		return j.hasEnded() || j.tape.watches() >= watches && p.Stats().Owed == 0
	})
	q.last = m
	j.bytes = p.Stats().ToClient - before.ToClient
	return j
}

func newLongQueue(t *testing.T, most int32) *longQueue {
	q := &longQueue{t: t, op: operator(t, shared.Addr()), most: most, last: backend.Exclusive}
	unlock(t, lock(t, connect(t, nil, shared.Addr()).Mutex("m"))) // makes the node of the lock
	return q
}

// TestRequestsInLongQueues counts what those ask for who join a long queue. The first comes
// after requests that did not announce themselves.
func TestRequestsInLongQueues(t *testing.T) {
	for _, n := range []int{100, 1000, 10000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			q := newLongQueue(t, 256)
			q.oldRequests(n)
			modes := []backend.Mode{backend.Exclusive, backend.Exclusive, backend.Exclusive, backend.Shared, backend.Shared, backend.Shared, backend.Exclusive}
			for i, m := range modes {
				j := q.join(m)
				lists, most := 0, int64(1000)
				if i == 0 || n <= 256 {
					lists, most = 1, int64(1000+60*(n+i))
				}
				t.Logf("%v behind %d: %d requests, %d bytes", m, n+i, j.tape.all(), j.bytes)
				if j.tape.count(opChildren) != lists || j.bytes > most || j.tape.all() > 10 {
					t.Errorf("it listed %d times; requests %v", j.tape.count(opChildren), j.tape.codes)
				}
			}
			if made := len(q.announced()); n > 256 && made != len(modes) || n < 256 && made != 0 {
				t.Errorf("there are %d announcements", made)
			}
		})
	}
}

// TestAnnouncementsProveNothing has whoever a request waits for go in several ways, while
// others that joined before still wait.
func TestAnnouncementsProveNothing(t *testing.T) {
	for what, act := range map[string]func(*testing.T, *longQueue, *joined){
		"it leaves":        func(_ *testing.T, _ *longQueue, first *joined) { first.leave() },
		"its session ends": func(t *testing.T, _ *longQueue, first *joined) { must(t, first.b.Close(context.Background())) },
		"it was deleted":   func(t *testing.T, q *longQueue, first *joined) { must(t, q.op.Delete(first.node, -1)) },
		"the announcement was deleted": func(t *testing.T, q *longQueue, _ *joined) {
			for _, name := range q.announced() {
				must(t, q.op.Delete(rootOf(t)+"/.dlock/"+name, -1))
			}
		},
		"the announcement is none": func(t *testing.T, q *longQueue, _ *joined) {
			for _, name := range q.announced() {
				_, err := q.op.Set(rootOf(t)+"/.dlock/"+name, []byte("nonsense"), -1)
				must(t, err)
			}
		},
		"others joined meanwhile": func(_ *testing.T, q *longQueue, _ *joined) { q.oldRequests(2) },
	} {
		for _, when := range []string{"before", "after"} {
			t.Run(what+"/"+when, func(t *testing.T) {
				t.Parallel()
				q := newLongQueue(t, 3)
				q.oldRequests(5)
				first := q.join(backend.Exclusive)
				defer first.leave()
				first.node = rootOf(t) + "/m/" + lastOf(nodes(t, q.op, "m"))
				if when == "before" {
					act(t, q, first)
				}
				second := q.join(backend.Exclusive)
				if when == "after" {
					act(t, q, first)
				}
				pass(100 * time.Millisecond)
				if second.hasEnded() {
					t.Fatal("granted behind others")
				}
				q.endOldRequests()
				select { // one of them is first, whoever has gone
				case <-first.done:
					if first.hold != nil {
						must(t, first.b.Release(testContext(t), first.hold))
					}
				case <-second.done:
				case <-time.After(limit):
					t.Fatal("nobody is granted the lock")
				}
				receive(t, "granted", second.done)
				must(t, second.err)
				must(t, second.b.Release(testContext(t), second.hold))
			})
		}
	}
}

// lastOf is the last of nodes in the queue.
func lastOf(nodes []string) (last string) {
	for _, n := range nodes {
		if last == "" || n[len(n)-10:] > last[len(last)-10:] {
			last = n
		}
	}
	return last
}

// TestAnnouncementsUnderLoad has clients that announce themselves, and some that do not,
// take a lock, give up, and lose their sessions, all at once.
func TestAnnouncementsUnderLoad(t *testing.T) {
	const clients, rounds = 16, 40
	var writers, readers atomic.Int32
	var all sync.WaitGroup
	for i := range clients {
		b, err := zk.Connect(testContext(t), []string{shared.Addr()}, &zk.Options{Root: rootOf(t), SessionTimeout: time.Minute, Standalone: true})
		must(t, err)
		t.Cleanup(func() { must(t, b.Close(context.Background())) })
		if i%4 != 0 {
			zk.SetManyChildren(b, 2)
		}
		all.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(i)))
			for range rounds {
				r := backend.Request{Name: "m", TTL: time.Minute, Wait: true}
				count, bad := &writers, func() bool { return writers.Load() != 1 || readers.Load() != 0 }
				if r.Mode = backend.Exclusive; rng.IntN(3) == 0 {
					r.Mode, count, bad = backend.Shared, &readers, func() bool { return writers.Load() != 0 }
				}
				ctx, cancel := testContext(t), context.CancelFunc(func() {})
				if rng.IntN(4) == 0 {
					ctx, cancel = context.WithTimeout(ctx, time.Duration(rng.IntN(20))*time.Millisecond)
				}
				h, err := b.Acquire(ctx, r)
				cancel()
				if err != nil {
					continue
				}
				count.Add(1)
				pass(time.Millisecond)
				if bad() {
					t.Errorf("%d writers and %d readers", writers.Load(), readers.Load())
				}
				count.Add(-1)
				if err := b.Release(testContext(t), h); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	q := &longQueue{t: t, op: operator(t, shared.Addr())}
	eventually(t, "all announcements are withdrawn", func() bool { return len(q.announced()) == 0 })
	queued(t, q.op, "m", 0)
}

// TestWriterBehindReaders has a writer join behind readers that have announced whom they
// wait for: it waits for the last of them, and they do not wait for one another.
func TestWriterBehindReaders(t *testing.T) {
	q := newLongQueue(t, 3)
	q.oldRequests(5)
	first := q.join(backend.Exclusive)
	readers := []*joined{q.join(backend.Shared), q.join(backend.Shared)}
	last := q.join(backend.Exclusive)
	for _, j := range append(readers, last) {
		if j.tape.count(opChildren) > 0 {
			t.Error("a request has listed the queue")
		}
	}
	q.endOldRequests()
	receive(t, "the first is granted", first.done)
	must(t, first.b.Release(testContext(t), first.hold))
	for _, r := range readers {
		receive(t, "a reader is granted", r.done)
	}
	for _, r := range readers {
		pass(50 * time.Millisecond)
		if last.hasEnded() {
			t.Fatal("a writer is granted the lock that a reader has")
		}
		must(t, r.b.Release(testContext(t), r.hold))
	}
	receive(t, "the writer is granted", last.done)
	must(t, last.b.Release(testContext(t), last.hold))
}

// TestAnnouncementOfWhoHasGone has a reader that does not wait join after a writer that has
// given up, and whose announcement is still there.
func TestAnnouncementOfWhoHasGone(t *testing.T) {
	q := newLongQueue(t, 1)
	readers := []*joined{q.join(backend.Shared), q.join(backend.Shared), q.join(backend.Shared)}
	for _, r := range readers {
		receive(t, "a reader is granted", r.done)
	}
	writer := q.join(backend.Exclusive)
	path := rootOf(t) + "/.dlock/" + q.announced()[0]
	text, _, err := q.op.Get(path)
	must(t, err)
	writer.leave()
	eventually(t, "the writer has gone", func() bool { return len(q.announced()) == 0 })
	queued(t, q.op, "m", len(readers))
	_, err = q.op.Create(path, text, gozk.FlagEphemeral, gozk.WorldACL(gozk.PermAll))
	must(t, err)
	b := readers[0].b
	h, err := b.Acquire(testContext(t), backend.Request{Name: "m", Mode: backend.Shared, TTL: time.Minute})
	must(t, err)
	must(t, b.Release(testContext(t), h))
	for _, r := range readers {
		must(t, r.b.Release(testContext(t), r.hold))
	}
}

// TestAnnouncementPauses bounds what a request waits for an announcement that never comes,
// as after a reader that holds the lock, or a waiter that has left.
func TestAnnouncementPauses(t *testing.T) {
	for _, took := range []time.Duration{0, time.Millisecond, 30 * time.Millisecond, 50 * time.Millisecond, time.Second} {
		var all time.Duration
		for _, p := range zk.AnnouncementPauses(took) {
			all += p
		}
		if all > min(took, 50*time.Millisecond) {
			t.Errorf("after a create of %v it waits for %v", took, all)
		}
	}
}
