package curator

import (
	"context"
	"errors"
	"testing"

	"github.com/go-zookeeper/zk"

	_ "github.com/dlock-go/dlock/backend/zk"
	"github.com/dlock-go/dlock/examples/comingfrom/internal/changeover"
	"github.com/dlock-go/dlock/internal/faultnet"
	"github.com/dlock-go/dlock/internal/server"
)

func before(ctx context.Context, servers []string, name string, work func(context.Context) error) error {
	return UnderMutex(ctx, servers, "/locks/"+name, work)
}

// versions are those of the page; the program before is in Go here.
func versions(t *testing.T, addr string) changeover.Versions {
	t.Helper()
	proxy, err := faultnet.Listen(addr) // what Both[0] connects to the old lock by
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { proxy.Close() })
	v := changeover.Versions{
		New: changeover.Open(t, "zk://"+addr),
		TakeOld: func(context.Context, string) error {
			proxy.Reset()
			return nil
		},
	}
	for i, old := range [2]string{proxy.Addr(), addr} {
		client := changeover.Open(t, "zk://"+addr)
		v.Before[i], v.Both[i], v.After[i] = changeover.Process(client, []string{old}, before, Both, After)
	}
	return v
}

func TestChangeOver(t *testing.T) {
	t.Parallel()
	if err := versions(t, server.Start(t, server.ZooKeeper{}).Addr()).Check(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Work that does not look is told at its end, of a node that was deleted too.
func TestLossUnawares(t *testing.T) {
	t.Parallel()
	addr := server.Start(t, server.ZooKeeper{}).Addr()
	admin, _, err := zk.Connect([]string{addr}, session)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.Close)
	if err := changeover.Unaware(t.Context(), versions(t, addr).Both[0], func(_ context.Context, name string) error {
		nodes, _, err := admin.Children("/locks/" + name)
		for _, node := range nodes {
			err = errors.Join(err, admin.Delete("/locks/"+name+"/"+node, -1))
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}
