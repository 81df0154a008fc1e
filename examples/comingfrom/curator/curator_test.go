package curator

import (
	"context"
	"testing"

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
