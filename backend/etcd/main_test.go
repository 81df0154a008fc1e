package etcd_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend/etcd"
	"github.com/dlock-go/dlock/internal/faultnet"
	"github.com/dlock-go/dlock/internal/server"
)

const limit = 3 * time.Minute // for every condition

var old = flag.Bool("old", false, "test with the distribution's etcd")

var shared *server.Server

func TestMain(m *testing.M) {
	if logged := os.Getenv(etcd.LoggedEnv); logged != "" {
		if err := etcd.OpenAngry(logged); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if err := flag.Set("test.parallel", "8"); err != nil { // tests wait more than they work
		panic(err)
	}
	flag.Parse()
	os.Exit(run(m))
}

// kind is the server under test.
func kind() server.Etcd { return server.Etcd{Distribution: *old} }

func run(m *testing.M) int {
	var err error
	if shared, err = server.New(kind()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer shared.Close()
	return m.Run()
}

func timed(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	return ctx
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func is(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got %v, want %v", err, want)
	}
}

// eventually waits until ok.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

func within(t testing.TB, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(limit):
		t.Fatalf("not within %v: %s", limit, what)
	}
}

// raw returns a bare client of a server, for looking and for meddling.
func raw(t testing.TB, addrs ...string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: addrs, Logger: zap.NewNop(), DialTimeout: limit})
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// prefix is the test's own part of the key space.
func prefix(t testing.TB) string { return strings.ReplaceAll(t.Name(), "/", "-") }

func open(t testing.TB, ttl time.Duration, addrs ...string) *dlock.Client {
	t.Helper()
	c, err := dlock.Open(timed(t), "etcd://"+strings.Join(addrs, ",")+"/"+prefix(t), &dlock.Options{TTL: ttl})
	must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		c.Close(ctx)
	})
	return c
}

// proxied returns a proxy to addr that knows requests.
func proxied(t testing.TB, addr string) *faultnet.Proxy {
	t.Helper()
	p, err := faultnet.Listen(addr)
	must(t, err)
	p.SetFraming(faultnet.HTTP2)
	t.Cleanup(func() { p.Close() })
	return p
}

// keys returns the keys of the locks of this test.
func keys(t testing.TB, c *clientv3.Client) []string {
	t.Helper()
	reply, err := c.Get(timed(t), prefix(t)+"/l/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	must(t, err)
	var out []string
	for _, kv := range reply.Kvs {
		out = append(out, string(kv.Key))
	}
	return out
}

func queued(t testing.TB, c *clientv3.Client, n int) {
	t.Helper()
	var found []string
	defer func() {
		if t.Failed() && len(found) != n {
			t.Logf("the keys are %q", found)
		}
	}()
	eventually(t, fmt.Sprintf("%d keys", n), func() bool { found = keys(t, c); return len(found) == n })
}

// A call is a Lock or RLock in a goroutine of its own.
type call struct {
	t     testing.TB
	done  chan struct{}
	lease *dlock.Lease
	err   error
}

func start(t testing.TB, ctx context.Context, lock func(context.Context) (*dlock.Lease, error)) *call {
	c := &call{t: t, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.lease, c.err = lock(ctx)
	}()
	return c
}

func (c *call) granted() *dlock.Lease {
	c.t.Helper()
	within(c.t, "granted", c.done)
	must(c.t, c.err)
	return c.lease
}

func (c *call) waiting() bool {
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}

// revoke ends the leases of all sessions of this test.
func revoke(t testing.TB, c *clientv3.Client) {
	t.Helper()
	reply, err := c.Get(timed(t), prefix(t)+"/s/", clientv3.WithPrefix())
	must(t, err)
	for _, kv := range reply.Kvs {
		_, err := c.Revoke(timed(t), clientv3.LeaseID(kv.Lease))
		must(t, err)
	}
}
