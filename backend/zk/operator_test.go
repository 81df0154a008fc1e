package zk_test

import (
	"errors"
	"testing"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend/zk"
	"github.com/dlock-go/dlock/internal/server"
)

// TestOperatorAsksAgain has a request that was not sent be sent when the server is back.
func TestOperatorAsksAgain(t *testing.T) {
	t.Parallel()
	s := server.Start(t, server.ZooKeeper{})
	conn, events, err := gozk.Connect([]string{s.Addr()}, limit, gozk.WithLogInfo(false), gozk.WithDialer(server.DialImpatiently))
	must(t, err)
	defer conn.Close()
	become := func(want gozk.State) {
		for e := range events {
			if e.State == want {
				return
			}
		}
	}
	become(gozk.StateHasSession)
	must(t, s.Kill())
	become(gozk.StateDisconnected)
	if _, _, err := conn.Exists("/"); !errors.Is(err, gozk.ErrNoServer) {
		t.Fatalf("no server: %v", err)
	}
	answer := make(chan error, 1)
	go func() {
		answer <- server.WhenConnected(gozk.ErrNoServer, func() error { _, _, err := conn.Exists("/"); return err })
	}()
	must(t, s.Restart(true))
	must(t, <-answer)
}

// TestWaiterDeletedByHand deletes the node of a request that waits. The lock goes to the one
// behind it, and it queues anew.
func TestWaiterDeletedByHand(t *testing.T) {
	t.Parallel()
	op := operator(t, shared.Addr())
	o := &zk.Options{SessionTimeout: 4 * time.Second}
	lease := lock(t, connect(t, o, shared.Addr()).Mutex("m"))
	before := start(t, connect(t, o, shared.Addr()).Mutex("m"))
	queued(t, op, "m", 2)
	c, p := proxied(t, o, shared.Addr())
	tp := record(p)
	removed := start(t, c.Mutex("m"))
	eventually(t, "it watches who is before it, the signal of that, and its own node", func() bool { return tp.watches() >= 3 && p.Stats().Owed == 0 })
	own := rootOf(t) + "/m/" + lastOf(nodes(t, op, "m"))
	_, err := op.Set(own, nil, -1) // a write is no end
	must(t, err)
	eventually(t, "it watches its own node again", func() bool { return tp.watches() >= 4 && p.Stats().Owed == 0 })
	behind := start(t, connect(t, o, shared.Addr()).Mutex("m"))
	queued(t, op, "m", 4)
	must(t, op.Delete(own, -1))
	unlock(t, lease)
	unlock(t, before.granted(t))
	lease = behind.granted(t)
	pass(100 * time.Millisecond)
	if !removed.waiting() {
		t.Fatal("two hold the lock")
	}
	unlock(t, lease)
	unlock(t, removed.granted(t))
}

// TestWaiterDeletedJustBefore deletes the node of a request that has waited too briefly to
// have it watched, and lets it in. Its hold is lost at its first renewal, which comes soon.
func TestWaiterDeletedJustBefore(t *testing.T) {
	t.Parallel()
	op := operator(t, shared.Addr())
	o := &zk.Options{SessionTimeout: time.Minute}
	lease := lock(t, connect(t, o, shared.Addr()).Mutex("m"))
	c, p := proxied(t, o, shared.Addr())
	tp := record(p)
	removed := start(t, c.Mutex("m"))
	eventually(t, "it watches who is before it", func() bool { return tp.watches() == 1 && p.Stats().Owed == 0 })
	must(t, op.Delete(rootOf(t)+"/m/"+lastOf(nodes(t, op, "m")), -1))
	unlock(t, lease)
	began, got := time.Now(), removed.granted(t)
	receive(t, "it is lost", got.Context(testContext(t)).Done())
	wantError(t, got.Err(), dlock.ErrLost)
	if took := time.Since(began); took > 15*time.Second { // a third of the TTL is 20 s
		t.Errorf("that took %v", took)
	}
}
