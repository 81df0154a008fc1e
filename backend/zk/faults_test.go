package zk_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend/zk"
	"github.com/dlock-go/dlock/internal/faultnet"
	"github.com/dlock-go/dlock/internal/server"
)

// lockers are the ways to queue for the lock m.
var lockers = map[string]func(*dlock.Client) dlock.Locker{
	"writer":      func(c *dlock.Client) dlock.Locker { return c.RWMutex("m") },
	"uncancelled": func(c *dlock.Client) dlock.Locker { return uncancelled{c.RWMutex("m")} },
	"reader":      func(c *dlock.Client) dlock.Locker { return c.RWMutex("m").RLocker() },
}

// An uncancelled locker passes a context on that never ends.
type uncancelled struct{ dlock.Locker }

func (p uncancelled) Lock(ctx context.Context) (*dlock.Lease, error) {
	return p.Locker.Lock(context.WithoutCancel(ctx))
}

func TestReplyToTheMultiIsLost(t *testing.T) {
	for name, locker := range lockers {
		t.Run(name, func(t *testing.T) {
			op := operator(t, shared.Addr())
			c, p := proxied(t, &zk.Options{SessionTimeout: 20 * time.Second}, shared.Addr())
			unlock(t, lock(t, c.Mutex("m")))
			drop := p.DropReplyAfter(isRequest(opMulti))
			lease := lock(t, locker(c))
			if !drop.Answered() {
				t.Fatal("the request was not carried out")
			}
			queued(t, op, "m", 1) // the one node that was made, and no other
			held(t, connect(t, nil, shared.Addr()).Mutex("m"))
			unlock(t, lease)
			queued(t, op, "m", 0)
		})
	}
}

func TestTheMultiIsLost(t *testing.T) {
	for name, locker := range lockers {
		t.Run(name, func(t *testing.T) {
			op := operator(t, shared.Addr())
			c, p := proxied(t, &zk.Options{SessionTimeout: 20 * time.Second}, shared.Addr())
			unlock(t, lock(t, c.Mutex("m")))
			_, before, err := op.Exists(rootOf(t) + "/m")
			must(t, err)
			p.Blackhole(faultnet.ToServer)
			next := start(t, locker(c))
			pass(100 * time.Millisecond) // the request is under way, or will be sent later
			p.Reset()
			p.Restore(faultnet.ToServer)
			unlock(t, next.granted(t))
			queued(t, op, "m", 0)
			_, after, err := op.Exists(rootOf(t) + "/m")
			must(t, err)
			if after.Cversion-before.Cversion != 2 {
				t.Errorf("children were made and removed %d times, want 2", after.Cversion-before.Cversion)
			}
		})
	}
}

// TestReplyIsLostToWhoHasLeft checks that nobody stays in the queue for a
// caller that has gone.
func TestReplyIsLostToWhoHasLeft(t *testing.T) {
	op := operator(t, shared.Addr())
	c, p := proxied(t, &zk.Options{SessionTimeout: 20 * time.Second}, shared.Addr())
	unlock(t, lock(t, c.Mutex("m")))
	p.Blackhole(faultnet.ToClient)
	next := start(t, c.Mutex("m"))
	queued(t, op, "m", 1)
	next.cancel()
	receive(t, "returned", next.done)
	wantError(t, next.err, dlock.ErrUnavailable, context.Canceled)
	p.Restore(faultnet.ToClient)
	queued(t, op, "m", 0)
}

// TestCloseEndsUncancelledLock closes a client whose caller waits for an answer in
// its own goroutine.
func TestCloseEndsUncancelledLock(t *testing.T) {
	op := operator(t, shared.Addr())
	c, p := proxied(t, &zk.Options{SessionTimeout: 20 * time.Second}, shared.Addr())
	unlock(t, lock(t, c.Mutex("m")))
	p.Blackhole(faultnet.ToClient)
	next := start(t, uncancelled{c.Mutex("m")})
	queued(t, op, "m", 1)
	_ = c.Close(testContext(t))
	receive(t, "returned", next.done)
	wantError(t, next.err, dlock.ErrClosed)
}

func TestReplyToTheDeleteIsLost(t *testing.T) {
	op := operator(t, shared.Addr())
	c, p := proxied(t, &zk.Options{SessionTimeout: 20 * time.Second}, shared.Addr())
	lease := lock(t, c.Mutex("m"))
	drop := p.DropReplyAfter(isRequest(opDelete))
	next := start(t, connect(t, nil, shared.Addr()).Mutex("m"))
	unlock(t, lease) // not lost, although the repeat finds nothing
	if !drop.Answered() {
		t.Fatal("the request was not carried out")
	}
	second := next.granted(t)
	queued(t, op, "m", 1)
	unlock(t, second)
}

// TestUnlockOfAShortHold has a TTL that is shorter than the way to the server. What is
// granted is the session.
func TestUnlockOfAShortHold(t *testing.T) {
	c, p := proxied(t, &zk.Options{SessionTimeout: 20 * time.Second}, shared.Addr())
	p.Delay(faultnet.ToServer, 20*time.Millisecond, 0)
	for range 3 {
		lease, err := c.Mutex("m", dlock.WithTTL(20*time.Millisecond)).Lock(testContext(t))
		must(t, err)
		unlock(t, lease)
	}
}

func TestDeleteGoesOnUntilDone(t *testing.T) {
	op := operator(t, shared.Addr())
	c, p := proxied(t, &zk.Options{SessionTimeout: 20 * time.Second}, shared.Addr())
	lease := lock(t, c.Mutex("m"))
	p.Blackhole(faultnet.ToServer)
	ctx, cancel := context.WithTimeout(testContext(t), 50*time.Millisecond)
	defer cancel()
	wantError(t, lease.Unlock(ctx), dlock.ErrUnavailable)
	p.Reset()
	p.Restore(faultnet.ToServer)
	queued(t, op, "m", 0)
}

// TestReconnectUnderWork breaks the connection while requests are under way and
// a node is watched. The driver tells the server of its watches then, and of
// the last change that it has seen: answers must not move that at the same time.
func TestReconnectUnderWork(t *testing.T) {
	c, p := proxied(t, &zk.Options{SessionTimeout: 20 * time.Second}, shared.Addr())
	other := lock(t, connect(t, nil, shared.Addr()).Mutex("m"))
	next := start(t, c.Mutex("m"))
	queued(t, operator(t, shared.Addr()), "m", 2)
	ctx, cancel := context.WithCancel(testContext(t))
	var workers sync.WaitGroup
	for i := range 4 {
		workers.Go(func() {
			for ctx.Err() == nil {
				if lease, err := c.Mutex(fmt.Sprint("work", i)).Lock(ctx); err == nil {
					must(t, lease.Unlock(testContext(t)))
				}
			}
		})
	}
	for range 30 {
		lease := lock(t, c.Mutex("again"))
		p.Reset()
		unlock(t, lease)
	}
	cancel()
	workers.Wait()
	unlock(t, other)
	unlock(t, next.granted(t))
}

func TestHolderIsToldOfARemovedNode(t *testing.T) {
	op := operator(t, shared.Addr())
	c, p := proxied(t, &zk.Options{SessionTimeout: 3 * time.Second}, shared.Addr())
	tp := record(p)
	lease := lock(t, c.Mutex("m"))
	eventually(t, "the node is watched", func() bool {
		tp.mu.Lock()
		defer tp.mu.Unlock()
		return slices.Contains(tp.codes, opChildren)
	})
	must(t, op.Delete(rootOf(t)+"/m/"+nodes(t, op, "m")[0], -1))
	receive(t, "lost", lease.Done())
	wantError(t, lease.Unlock(testContext(t)), dlock.ErrLost)
}

// wipe removes a lock's node with all in it.
func wipe(t testing.TB, op *gozk.Conn, dir string) {
	for {
		children, _, err := op.Children(dir)
		for _, child := range children {
			_ = op.Delete(dir+"/"+child, -1)
		}
		if err == nil {
			err = op.Delete(dir, -1)
		}
		switch {
		case err == nil, errors.Is(err, gozk.ErrNoNode):
			return
		case !errors.Is(err, gozk.ErrNotEmpty):
			t.Error(err)
			return
		}
	}
}

// TestParentIsRemoved removes the lock's node, and all in it, right before each
// request that a lock and an unlock are made of.
func TestParentIsRemoved(t *testing.T) {
	steps := map[string]uint32{
		"children": opChildren, "multi": opMulti, "get": opGet, "delete": opDelete, "container": opContainer,
	}
	for name, locker := range lockers {
		for step, code := range steps {
			t.Run(name+"/"+step, func(t *testing.T) {
				op := operator(t, shared.Addr())
				dir := rootOf(t) + "/m"
				if code != opContainer {
					unlock(t, lock(t, connect(t, nil, shared.Addr()).Mutex("m")))
				}
				holder := lock(t, connect(t, &zk.Options{SessionTimeout: 3 * time.Second}, shared.Addr()).Mutex("m"))
				c, p := proxied(t, nil, shared.Addr())
				var once sync.Once
				p.OnRequest(func(_ int, req []byte) {
					if codeOf(req) == code {
						once.Do(func() { wipe(t, op, dir) })
					}
				})
				if code == opDelete {
					unlock(t, holder)
				}
				next := start(t, locker(c))
				if code == opContainer {
					wipe(t, op, dir)
				}
				lease := next.granted(t)
				n := len(nodes(t, op, "m"))
				if err := lease.Unlock(testContext(t)); n == 0 || code == opDelete {
					wantError(t, err, dlock.ErrLost)
				} else {
					must(t, err)
				}
				_ = holder.Unlock(testContext(t))
				queued(t, op, "m", 0)
			})
		}
	}
}

func TestForeignChildren(t *testing.T) {
	op := operator(t, shared.Addr())
	a, b := connect(t, nil, shared.Addr()), connect(t, nil, shared.Addr())
	unlock(t, lock(t, a.Mutex("m")))
	odd := []string{"lock-0000000000", "_c_", "_c_0123456789abcdef0123456789abcdef-lock-0000000001", "x", "-w-", "0123456789abcdef0123456789abcdef-w-"}
	for _, name := range odd {
		_, err := op.Create(rootOf(t)+"/m/"+name, nil, gozk.FlagPersistent, gozk.WorldACL(gozk.PermAll))
		must(t, err)
	}
	for range 2 {
		lease := lock(t, a.RWMutex("m"))
		held(t, b.RWMutex("m").RLocker())
		next := start(t, b.RWMutex("m").RLocker())
		queued(t, op, "m", len(odd)+2)
		unlock(t, lease)
		unlock(t, next.granted(t))
	}
	try(t, b.Mutex("m"))
	left := nodes(t, op, "m")
	slices.Sort(left)
	slices.Sort(odd)
	if !slices.Equal(left, odd) {
		t.Errorf("left %v, want %v", left, odd)
	}
}

// TestWhoLeavesEarlyLeavesNoLock has a caller leave when the lock's node has been made
// and its own has not: the server would never remove it.
func TestWhoLeavesEarlyLeavesNoLock(t *testing.T) {
	op := operator(t, shared.Addr())
	c, p := proxied(t, nil, shared.Addr())
	unlock(t, lock(t, c.Mutex("other")))
	ready, next := make(chan struct{}), (*call)(nil)
	p.OnRequest(func(_ int, req []byte) {
		if codeOf(req) == opContainer {
			<-ready
			next.cancel()
			receive(t, "returned", next.done)
		}
	})
	next = start(t, c.Mutex("m"))
	close(ready)
	receive(t, "returned", next.done)
	eventually(t, "the lock's node is gone", func() bool {
		there, stat, err := op.Exists(rootOf(t) + "/m")
		return err == nil && (!there || stat.Cversion > 0)
	})
}

// TestWhoHasLeftIsGone looks at the queue right when a caller has given up: nobody
// stands in the way of others but for some milliseconds. A loaded machine may be late
// now and then.
func TestWhoHasLeftIsGone(t *testing.T) {
	const rounds = 20
	op := operator(t, shared.Addr())
	holder := lock(t, connect(t, nil, shared.Addr()).Mutex("m"))
	m, late := connect(t, nil, shared.Addr()).Mutex("m"), 0
	for range rounds {
		next := start(t, m)
		queued(t, op, "m", 2)
		next.cancel()
		receive(t, "returned", next.done)
		if len(nodes(t, op, "m")) != 1 {
			late++
		}
		queued(t, op, "m", 1)
	}
	if late > rounds/2 {
		t.Errorf("%d of %d were still there", late, rounds)
	}
	unlock(t, holder)
}

// TestGivingUpLeavesNothing gives up waiting for a held lock many times: no
// node stays, and the server keeps one watch at most.
func TestGivingUpLeavesNothing(t *testing.T) {
	op := operator(t, shared.Addr())
	long := &zk.Options{SessionTimeout: time.Minute} // the holder watches its node from the first renewal on
	holder := lock(t, connect(t, long, shared.Addr()).Mutex("m"))
	c := connect(t, nil, shared.Addr())
	before := watches(t, shared.Addr())
	for range 50 {
		next := start(t, c.Mutex("m"))
		queued(t, op, "m", 2)
		next.cancel()
		receive(t, "returned", next.done)
		wantError(t, next.err, dlock.ErrHeld, context.Canceled)
		queued(t, op, "m", 1)
	}
	if n := watches(t, shared.Addr()) - before; n > 1 {
		t.Errorf("%d watches are left", n)
	}
	unlock(t, holder)
	try(t, c.Mutex("m"))
}

// watches returns how many watches the server keeps.
func watches(t testing.TB, addr string) (n int) {
	t.Helper()
	var connections, paths int
	_, err := fmt.Sscanf(command(t, addr, "wchs"), "%d connections watching %d paths\nTotal watches:%d", &connections, &paths, &n)
	must(t, err)
	return n
}

// TestQuota lets no lock have more nodes than one: who waits is told why not.
func TestQuota(t *testing.T) {
	t.Parallel()
	s := server.Start(t, server.ZooKeeper{SuperPassword: superPassword, Config: []string{"enforceQuota=true", "extendedTypesEnabled=true"}})
	op, root := operator(t, s.Addr()), rootOf(t)
	c, p := proxied(t, nil, s.Addr())
	unlock(t, lock(t, c.Mutex("a")))
	for _, n := range []struct{ path, data string }{
		{"", ""},
		{"/zookeeper_limits", "count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=2"},
		{"/zookeeper_stats", "count=0,bytes=0"},
	} {
		_, err := op.Create("/zookeeper/quota"+root+n.path, []byte(n.data), 0, gozk.WorldACL(gozk.PermAll))
		must(t, err)
	}
	var requests atomic.Int64
	p.OnRequest(func(int, []byte) { requests.Add(1) })
	_, err := c.Mutex("a").Lock(testContext(t))
	wantError(t, err, dlock.ErrUnavailable)
	if n := requests.Load(); n > 5 || !strings.Contains(err.Error(), "-125") {
		t.Errorf("after %d requests: %v", n, err)
	}
}
