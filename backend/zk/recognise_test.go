package zk

import (
	"context"
	"errors"
	"testing"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/internal/server"
)

// TestNodeOfAnotherSessionIsNotOurs looks for a node that an earlier session of
// the same client may have left, and that goes with it.
func TestNodeOfAnotherSessionIsNotOurs(t *testing.T) {
	s := server.Start(t, server.ZooKeeper{})
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	b, err := Connect(ctx, []string{s.Addr()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close(ctx)
	own, err := b.session()
	if err != nil {
		t.Fatal(err)
	}
	earlier, _, err := gozk.Connect([]string{s.Addr()}, 30*time.Second, gozk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	defer earlier.Close()

	dir, guid := b.opts.Root+"/m", newGUID()
	if err := own.ensure(dir); err != nil {
		t.Fatal(err)
	}
	path := dir + "/" + guid + "-w-"
	if _, err := earlier.Create(path, data(0, ""), gozk.FlagEphemeralSequential, gozk.WorldACL(gozk.PermAll)); err != nil {
		t.Fatal(err)
	}
	if err := own.find(&node{session: own, dir: dir, guid: guid}); !errors.Is(err, gozk.ErrNoNode) {
		t.Errorf("the node is taken for ours: %v", err)
	}
}
