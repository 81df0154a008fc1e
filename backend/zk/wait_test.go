package zk_test

import (
	"context"
	"errors"
	"flag"
	"strings"
	"sync"
	"testing"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/zk"
	"github.com/dlock-go/dlock/internal/faultnet"
)

// watchersPerPath is the greatest number of sessions that watch one path.
func watchersPerPath(t *testing.T, root string) (most int) {
	n, inside := 0, false
	for _, line := range strings.Split(command(t, shared.Addr(), "wchp"), "\n") {
		switch {
		case strings.HasPrefix(line, "/"):
			n, inside = 0, strings.HasPrefix(line, root+"/")
		case inside && strings.TrimSpace(line) != "":
			n++
			most = max(most, n)
		}
	}
	return most
}

var waiters = flag.Int("waiters", 1000, "how many wait for the lock of TestLongQueue")

// checkedOften opens one more client, whose waiters look often whether they still have to
// wait.
func checkedOften(t *testing.T, o *zk.Options) (*zk.Backend, *tape) {
	t.Helper()
	p := proxyTo(t, shared.Addr())
	b, err := zk.Connect(testContext(t), []string{p.Addr()}, o)
	must(t, err)
	t.Cleanup(func() { must(t, b.Close(context.Background())) })
	zk.SetCheckEvery(b, 20*time.Millisecond)
	return b, record(p)
}

// inQueue returns how many there are in the queue, without a list of them.
func inQueue(t *testing.T, op *gozk.Conn) int {
	t.Helper()
	_, stat, err := op.Exists(rootOf(t) + "/m")
	must(t, err)
	return int(stat.NumChildren)
}

// slowly waits until there are n in the queue, however many that is.
func slowly(t *testing.T, op *gozk.Conn, n int) {
	t.Helper()
	for end := time.Now().Add(limit + time.Duration(n)*20*time.Millisecond); inQueue(t, op) < n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d are in the queue, want %d", inQueue(t, op), n)
		}
	}
}

// TestLongQueue has a thousand wait for one lock: no node is watched by more than two, and
// neither the check of a waiter nor a request that does not wait asks for more than one or
// two nodes, however long the queue.
func TestLongQueue(t *testing.T) {
	const clients = 10
	each := *waiters / clients
	op := operator(t, shared.Addr())
	o := &zk.Options{Root: rootOf(t), SessionTimeout: time.Minute, Standalone: true}
	holder := lock(t, connect(t, o, shared.Addr()).Mutex("m"))
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	granted, started, began := make(chan *backend.Hold, clients*each), 0, time.Now()
	for range clients {
		b, err := zk.Connect(testContext(t), []string{shared.Addr()}, o)
		must(t, err)
		t.Cleanup(func() { must(t, b.Close(context.Background())) })
		for range each {
			const together = 64 // more at once are too much for a busy machine
			if started++; started%together == 0 {
				slowly(t, op, 1+started-together)
			}
			all.Go(func() {
				h, err := b.Acquire(ctx, backend.Request{Name: "m", Mode: backend.Exclusive, TTL: time.Minute, Wait: true})
				if err == nil {
					granted <- h
					err = b.Release(context.Background(), h)
				}
				if err != nil && !errors.Is(err, backend.ErrHeld) {
					t.Error(err)
				}
			})
		}
	}
	slowly(t, op, 1+clients*each)
	t.Logf("%d are in the queue after %v", clients*each, time.Since(began).Round(time.Millisecond))
	if n := watchersPerPath(t, o.Root); n > 2 {
		t.Errorf("%d clients watch one node on the way in", n)
	}

	const checks = 20
	b, checking := checkedOften(t, o)
	leaves, leave := context.WithCancel(testContext(t))
	left, before := make(chan struct{}), checking.proxy.Stats()
	go func() {
		defer close(left)
		_, _ = b.Acquire(leaves, backend.Request{Name: "m", Mode: backend.Exclusive, TTL: time.Minute, Wait: true})
	}()
	eventually(t, "it looks at its predecessor", func() bool { return checking.count(opExists) > 0 })
	t.Logf("one more joins: %d bytes", checking.proxy.Stats().ToClient-before.ToClient)
	eventually(t, "it looks at its predecessor again and again", func() bool { return checking.count(opExists) >= 2+2*checks })
	if lists := checking.count(opChildren); lists > 0 {
		t.Errorf("a waiter that has looked %d times at its predecessor has listed the queue %d times", checks, lists)
	}
	leave()
	receive(t, "it has left", left)

	c, p := proxied(t, o, shared.Addr())
	held(t, c.Mutex("m"))
	tp := record(p)
	before = p.Stats()
	const tries = 20
	for range tries {
		held(t, c.Mutex("m"))
	}
	if n := tp.count(opExists); n != tries || tp.count(opChildren) > 0 {
		t.Errorf("%d tries asked for a node %d times, and for all %d times", tries, n, tp.count(opChildren))
	}
	if after := p.Stats(); after.ToClient-before.ToClient > tries*200 {
		t.Errorf("%d tries took %d bytes", tries, after.ToClient-before.ToClient)
	}

	unlock(t, holder)
	for range min(clients*each, 200) {
		receive(t, "the next in line", granted)
		if n := watchersPerPath(t, o.Root); n > 2 {
			t.Fatalf("%d clients watch one node after a change", n)
		}
	}
}

// TestLooksAreShared has many requests of one client join a long queue at once, and counts
// how often they list it. None of them is so early that it misses itself in a list.
func TestLooksAreShared(t *testing.T) {
	const before, n, most = 70, 64, 12
	done := make(chan error, before+n)
	op := operator(t, shared.Addr())
	o := &zk.Options{Root: rootOf(t), SessionTimeout: time.Minute, Standalone: true}
	holder := lock(t, connect(t, o, shared.Addr()).Mutex("m"))
	join := func(b *zk.Backend, n int) {
		for range n {
			go func() {
				h, err := b.Acquire(testContext(t), backend.Request{Name: "m", Mode: backend.Exclusive, TTL: time.Minute, Wait: true})
				if err == nil {
					err = b.Release(context.Background(), h)
				}
				done <- err
			}()
		}
	}
	first, err := zk.Connect(testContext(t), []string{shared.Addr()}, o)
	must(t, err)
	t.Cleanup(func() { must(t, first.Close(context.Background())) })
	join(first, before)
	slowly(t, op, 1+before)
	p := proxyTo(t, shared.Addr())
	b, err := zk.Connect(testContext(t), []string{p.Addr()}, o)
	must(t, err)
	t.Cleanup(func() { must(t, b.Close(context.Background())) })
	tp := record(p)
	p.Delay(faultnet.ToClient, 20*time.Millisecond, 0)
	join(b, n)
	eventually(t, "all watch", func() bool { return tp.count(opGet) >= n && tp.proxy.Stats().Owed == 0 })
	if lists := tp.count(opChildren); lists == 0 || lists > most {
		t.Errorf("%d requests have listed the queue %d times", n, lists)
	}
	if creates := tp.count(opMulti); creates != n {
		t.Errorf("%d requests have joined %d times", n, creates)
	}
	p.Delay(faultnet.ToClient, 0, 0)
	unlock(t, holder)
	for range before + n {
		must(t, receive(t, "everybody has had the lock", done))
	}
}
