package curator

import (
	"context"
	"testing"

	"github.com/dlock-go/dlock"
	_ "github.com/dlock-go/dlock/backend/zk"
	"github.com/dlock-go/dlock/examples/comingfrom/internal/changeover"
	"github.com/dlock-go/dlock/internal/faultnet"
	"github.com/dlock-go/dlock/internal/server"
)

func open(t *testing.T, addr string) *dlock.Client {
	t.Helper()
	client, err := dlock.Open(t.Context(), "zk://"+addr, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(context.Background()) })
	return client
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
		New: open(t, addr),
		TakeOld: func(context.Context, string) error {
			proxy.Reset()
			return nil
		},
	}
	for i, old := range [2]string{proxy.Addr(), addr} {
		client := open(t, addr)
		v.Before[i] = func(ctx context.Context, name string, work func(context.Context) error) error {
			return UnderMutex(ctx, []string{addr}, "/locks/"+name, work)
		}
		v.Both[i] = func(ctx context.Context, name string, work func(context.Context) error) error {
			return Both(ctx, client, []string{old}, name, work)
		}
		v.After[i] = func(ctx context.Context, name string, work func(context.Context) error) error {
			return After(ctx, client, name, work)
		}
	}
	return v
}

func TestChangeOver(t *testing.T) {
	t.Parallel()
	if err := versions(t, server.Start(t, server.ZooKeeper{}).Addr()).Check(t.Context()); err != nil {
		t.Fatal(err)
	}
}
