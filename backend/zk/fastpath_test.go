package zk_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend/zk"
	"github.com/dlock-go/dlock/internal/faultnet"
)

const opCreate = 1

// fastPathHolds is how many holds make a fast path.
const fastPathHolds = 8

// repeat takes a lock and gives it back, n times, and checks that tokens grow.
func repeat(t testing.TB, l dlock.Locker, n int, last uint64) uint64 {
	t.Helper()
	for range n {
		lease := lock(t, l)
		if lease.Token() <= last {
			t.Fatalf("token %d came after %d", lease.Token(), last)
		}
		last = lease.Token()
		unlock(t, lease)
	}
	return last
}

func fastClient(t testing.TB) (*dlock.Client, *faultnet.Proxy) {
	return proxied(t, &zk.Options{SessionTimeout: 20 * time.Second}, shared.Addr())
}

func TestFastPathRequests(t *testing.T) {
	a, p := fastClient(t)
	b := connect(t, nil, shared.Addr())
	last := repeat(t, a.Mutex("m"), fastPathHolds, 0)
	tp := record(p)
	last = repeat(t, a.Mutex("m"), 1, last)
	tp.want(t, "the first by the fast path", opGet, opCreate, opDelete)
	repeat(t, a.Mutex("m"), 2, last)
	tp.want(t, "two more", opCreate, opDelete, opCreate, opDelete)

	lease := lock(t, a.Mutex("m"))
	held(t, b.Mutex("m"))
	held(t, b.RWMutex("m").RLocker())
	next := start(t, b.Mutex("m"))
	queued(t, operator(t, shared.Addr()), "m", 2)
	unlock(t, lease)
	last = next.granted(t).Token()
	unlock(t, next.lease)
	tp.want(t, "one that another waits for", opCreate, opDelete)
	last = repeat(t, a.Mutex("m"), 1, last)
	tp.want(t, "one after another's", opMulti, opDelete)
	reader := lock(t, b.RWMutex("m").RLocker())
	if reader.Token() <= last {
		t.Errorf("reader's token %d came after %d", reader.Token(), last)
	}
	unlock(t, reader)
}

// TestFastPathOutlastsTokenBlock creates more nodes by the fast path than there are tokens to one
// transaction.
func TestFastPathOutlastsTokenBlock(t *testing.T) {
	t.Parallel()
	const holds = 4096 + 100
	a, p := fastClient(t)
	tp := record(p)
	repeat(t, a.Mutex("m"), holds, 0)
	if n := tp.count(opMulti); n < 2*fastPathHolds || n > 4*fastPathHolds {
		t.Errorf("%d holds had %d transactions", holds, n)
	}
}

// TestFastPathOfRecreatedNode has the lock's node removed and made anew, with as many
// children made below as before.
func TestFastPathOfRecreatedNode(t *testing.T) {
	op := operator(t, shared.Addr())
	a, _ := fastClient(t)
	const before = fastPathHolds + 2
	repeat(t, a.Mutex("m"), before, 0)
	dir := rootOf(t) + "/m"
	must(t, op.Delete(dir, -1))
	_, err := op.Create(dir, nil, gozk.FlagPersistent, gozk.WorldACL(gozk.PermAll))
	must(t, err)
	var holder string
	for i := range before {
		if holder != "" {
			must(t, op.Delete(holder, -1))
		}
		name := fmt.Sprintf("%s/%032x-w-", dir, i)
		holder, err = op.Create(name, nil, gozk.FlagEphemeralSequential, gozk.WorldACL(gozk.PermAll))
		must(t, err)
	}
	waitsFor(t, op, holder, a.Mutex("m"))
}

// waitsFor checks that l waits for a node that op has made.
func waitsFor(t *testing.T, op *gozk.Conn, holder string, l dlock.Locker) {
	t.Helper()
	next := start(t, l)
	queued(t, op, "m", 2)
	if !next.waiting() {
		t.Fatal("let in beside a holder")
	}
	must(t, op.Delete(holder, -1))
	unlock(t, next.granted(t))
}

// TestFastPathBehindStranger has somebody queue who does not change the lock's node.
func TestFastPathBehindStranger(t *testing.T) {
	op := operator(t, shared.Addr())
	a, _ := fastClient(t)
	repeat(t, a.Mutex("m"), fastPathHolds+1, 0)
	stranger, err := op.Create(fmt.Sprintf("%s/m/%032x-w-", rootOf(t), 1), nil, gozk.FlagEphemeralSequential, gozk.WorldACL(gozk.PermAll))
	must(t, err)
	waitsFor(t, op, stranger, a.Mutex("m"))
}

// TestFastPathBrokenOnTheWay has another come, of whom the client hears when it has
// asked for a node by the fast path already.
func TestFastPathBrokenOnTheWay(t *testing.T) {
	op := operator(t, shared.Addr())
	a, p := fastClient(t)
	b := connect(t, nil, shared.Addr())
	last := repeat(t, a.Mutex("m"), fastPathHolds+1, 0)
	p.Blackhole(faultnet.ToClient)
	lease := lock(t, b.Mutex("m"))
	tp := record(p)
	next := start(t, a.Mutex("m"))
	eventually(t, "a node is asked for by the fast path", func() bool { return tp.count(opCreate) == 1 })
	queued(t, op, "m", 2)
	p.Restore(faultnet.ToClient)
	eventually(t, "that is deleted, and a node is asked for in a transaction", func() bool { return tp.count(opMulti) == 2 })
	queued(t, op, "m", 2)
	if !next.waiting() {
		t.Fatal("let in beside a holder")
	}
	unlock(t, lease)
	if token := next.granted(t).Token(); token <= max(last, lease.Token()) {
		t.Errorf("token %d came after %d and %d", token, last, lease.Token())
	}
	unlock(t, next.lease)
	queued(t, op, "m", 0)
}

// TestFastPathBetweenCheckAndQueue has a node created by the fast path after
// another client has checked the queue, and before that joins it.
func TestFastPathBetweenCheckAndQueue(t *testing.T) {
	// between has a lock m, and b ask for it as if it had not.
	between := func(t *testing.T) (lease func() *dlock.Lease, b *dlock.Client, last uint64) {
		a, _ := fastClient(t)
		b, p := fastClient(t)
		last = repeat(t, a.Mutex("m"), fastPathHolds+1, 0)
		lease = sync.OnceValue(func() *dlock.Lease {
			lease, err := a.Mutex("m").Lock(testContext(t))
			if err != nil {
				t.Error(err)
			}
			return lease
		})
		p.OnRequest(func(_ int, req []byte) {
			if codeOf(req) == opMulti {
				lease()
			}
		})
		return lease, b, last
	}
	t.Run("reader", func(t *testing.T) {
		lease, b, last := between(t)
		next := start(t, b.RWMutex("m").RLocker())
		queued(t, operator(t, shared.Addr()), "m", 2)
		must(t, lease().Err())
		if !next.waiting() {
			t.Fatal("a reader was let in beside a writer")
		}
		unlock(t, lease())
		if token := next.granted(t).Token(); token <= max(last, lease().Token()) {
			t.Errorf("token %d came after %d", token, lease().Token())
		}
		unlock(t, next.lease)
	})
	t.Run("try", func(t *testing.T) {
		lease, b, _ := between(t)
		held(t, b.Mutex("m"))
		unlock(t, lease())
		queued(t, operator(t, shared.Addr()), "m", 0)
	})
}

// TestReplyToFastCreateIsLost leaves one node to the lock, and then none.
func TestReplyToFastCreateIsLost(t *testing.T) {
	for _, name := range []string{"writer", "uncancelled"} {
		locker := lockers[name]
		t.Run(name, func(t *testing.T) {
			op := operator(t, shared.Addr())
			c, p := fastClient(t)
			last := repeat(t, c.Mutex("m"), fastPathHolds+1, 0)
			drop := p.DropReplyAfter(isRequest(opCreate))
			lease := lock(t, locker(c))
			if !drop.Answered() {
				t.Fatal("the request was not carried out")
			}
			if lease.Token() <= last {
				t.Errorf("token %d came after %d", lease.Token(), last)
			}
			eventually(t, "one node is left", func() bool { return len(nodes(t, op, "m")) == 1 })
			held(t, connect(t, nil, shared.Addr()).Mutex("m"))
			unlock(t, lease)
			queued(t, op, "m", 0)
		})
	}
}

// TestReadersWhoJoinTogether has a reader queue between another's look and its
// node: both get in, with tokens after the writer's.
func TestReadersWhoJoinTogether(t *testing.T) {
	a, _ := fastClient(t)
	b, p := fastClient(t)
	c, _ := fastClient(t)
	writer := repeat(t, a.Mutex("m"), 1, 0)
	leases := []*dlock.Lease{lock(t, a.RWMutex("m").RLocker())}
	var between sync.Once
	p.OnRequest(func(_ int, req []byte) {
		if codeOf(req) == opMulti {
			between.Do(func() {
				lease, _ := c.RWMutex("m").RLock(testContext(t))
				leases = append(leases, lease)
			})
		}
	})
	leases = append(leases, lock(t, b.RWMutex("m").RLocker()))
	if slices.ContainsFunc(leases, func(l *dlock.Lease) bool { return l.Token() <= writer }) {
		t.Error("a reader's token is no greater than the writer's")
	}
	for _, l := range leases {
		unlock(t, l)
	}
}
