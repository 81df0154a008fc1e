package zk

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/faultnet"
	"github.com/dlock-go/dlock/internal/server"
)

// inSession connects to a server of its own.
func inSession(t *testing.T) (addr string, b *Backend, own *session) {
	s := server.Start(t, server.ZooKeeper{})
	b, own = sessionAt(t, s.Addr())
	return s.Addr(), b, own
}

func sessionAt(t *testing.T, addr string) (*Backend, *session) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	b, err := Connect(ctx, []string{addr}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close(ctx) })
	own, err := b.session(0)
	if err != nil {
		t.Fatal(err)
	}
	return b, own
}

// proxiedQueue connects to a server of its own, by a proxy, and makes the node of a lock.
func proxiedQueue(t *testing.T) (addr string, p *faultnet.Proxy, own *session, dir string) {
	t.Helper()
	s := server.Start(t, server.ZooKeeper{})
	p, err := faultnet.Listen(s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	p.SetFraming(faultnet.ZooKeeper)
	b, own := sessionAt(t, p.Addr())
	dir = b.opts.Root + "/m"
	if _, err := own.ensureDir(dir); err != nil {
		t.Fatal(err)
	}
	return s.Addr(), p, own, dir
}

// acquire takes a lock.
func acquire(t *testing.T, b *Backend, name string) *backend.Hold {
	t.Helper()
	h, err := b.Acquire(context.Background(), backend.Request{Name: name, Mode: backend.Exclusive, TTL: time.Minute, Wait: true})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestNodeOfAnotherSessionIsNotOurs looks for a node that an earlier session of
// the same client may have left, and that goes with it.
func TestNodeOfAnotherSessionIsNotOurs(t *testing.T) {
	t.Parallel()
	addr, b, own := inSession(t)
	earlier, _, err := gozk.Connect([]string{addr}, 30*time.Second, gozk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	defer earlier.Close()

	dir, guid := b.opts.Root+"/m", newGUID()
	if _, err := own.ensureDir(dir); err != nil {
		t.Fatal(err)
	}
	path := dir + "/" + guid + "-w-"
	if _, err := earlier.Create(path, nodeData(0, "", 0), gozk.FlagEphemeralSequential, gozk.WorldACL(gozk.PermAll)); err != nil {
		t.Fatal(err)
	}
	if err := own.findNode(&node{session: own, dir: dir, guid: guid}); !errors.Is(err, gozk.ErrNoNode) {
		t.Errorf("the node is taken for ours: %v", err)
	}
}

// TestCheckPredecessor looks after a waiting node by two requests, and finds out that nobody
// has told of the end of the one before.
func TestCheckPredecessor(t *testing.T) {
	_, p, own, dir := proxiedQueue(t)
	var line []*node
	for range 3 {
		n, err := own.createNode(nodeSpec{dir: dir, mode: backend.Exclusive})
		if err != nil {
			t.Fatal(err)
		}
		line = append(line, n)
	}
	last := line[2]
	if err := last.findPredecessors(); err != nil || last.predecessors.count != 2 {
		t.Fatal(last.predecessors, err)
	}
	var requests atomic.Int64
	p.OnRequest(func(int, []byte) { requests.Add(1) })
	if err := last.checkPredecessor(); err != nil || requests.Load() != 2 {
		t.Errorf("%d requests, %v", requests.Load(), err)
	}
	own.mu.Lock()
	deaf := own.newWatch(line[1].path()) // of which the server knows nothing
	own.mu.Unlock()
	if err := errors.Join(line[1].leaveQueue(), last.checkPredecessor()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-deaf.fired:
	default:
		t.Error("the end of the node before was not found out")
	}
	if err := errors.Join(last.leaveQueue(), line[0].leaveQueue()); err != nil {
		t.Fatal(err)
	}
	if err := last.checkPredecessor(); !errors.Is(err, errWaiterRemoved) {
		t.Errorf("a node that is gone waits: %v", err)
	}
}

// TestFastPathHasOwnWatch has one left over of which the server knows nothing.
func TestFastPathHasOwnWatch(t *testing.T) {
	t.Parallel()
	addr, b, own := inSession(t)
	ctx, dir := context.Background(), b.opts.Root+"/m"
	cycle := func() {
		h, err := b.Acquire(ctx, backend.Request{Name: "m", Mode: backend.Exclusive, TTL: time.Minute, Wait: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Release(ctx, h); err != nil {
			t.Fatal(err)
		}
	}
	for range minFastPathHolds {
		cycle()
	}
	own.mu.Lock()
	stale := own.newWatch(dir)
	stale.zxid = own.fastPath.dirZxid
	close(stale.set)
	own.mu.Unlock()
	cycle()

	other, _, err := gozk.Connect([]string{addr}, 30*time.Second, gozk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := other.Delete(dir, -1); err != nil {
		t.Fatal(err)
	}
	if _, _, err := own.client.Exists("/"); err != nil { // what came before is known with the answer
		t.Fatal(err)
	}
	own.mu.Lock()
	defer own.mu.Unlock()
	if !own.fastPath.isWatched || !own.fastPath.isBroken {
		t.Errorf("the lock's node is gone, and the fast path is %+v", own.fastPath)
	}
}
