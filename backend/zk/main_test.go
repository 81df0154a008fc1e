package zk_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
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

// shared is the server of all tests that do not disturb it.
var shared *server.Server

const superPassword = "super-secret"

func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "6"); err != nil { // tests wait more than they work
		panic(err)
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if shared, err = server.New(kind); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer shared.Close()
	return m.Run()
}

var kind = server.ZooKeeper{SuperPassword: superPassword, Config: []string{"maxSessionTimeout=300000"}}

const limit = 3 * time.Minute

func testContext(t testing.TB) context.Context {
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

func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

func receive[T any](t testing.TB, what string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(limit):
		t.Fatalf("never: %s", what)
		panic("unreachable")
	}
}

var (
	roots   sync.Map // where each run of a test keeps its locks
	started atomic.Int64
)

// rootOf is where a test keeps its locks. A test that is repeated finds nothing of
// the run before.
func rootOf(t testing.TB) string {
	if root, ok := roots.Load(t); ok {
		return root.(string)
	}
	name := strings.NewReplacer("/", "-", "#", "-").Replace(t.Name())
	root, _ := roots.LoadOrStore(t, fmt.Sprintf("/dlock-%s-%d", name, started.Add(1)))
	return root.(string)
}

// connect returns a client of the server at addr, with a session of 6 s unless o says
// otherwise.
func connect(t testing.TB, o *zk.Options, addr string) *dlock.Client {
	t.Helper()
	opts := zk.Options{}
	if o != nil {
		opts = *o
	}
	opts.Standalone = true
	return member(t, &opts, addr)
}

// member is connect to an ensemble.
func member(t testing.TB, o *zk.Options, addrs ...string) *dlock.Client {
	t.Helper()
	opts := *o
	if opts.Root == "" {
		opts.Root = rootOf(t)
	}
	if opts.SessionTimeout == 0 {
		opts.SessionTimeout = 6 * time.Second
	}
	b, err := zk.Connect(testContext(t), addrs, &opts)
	must(t, err)
	c, err := dlock.New(b, &dlock.Options{TTL: opts.SessionTimeout})
	must(t, err)
	t.Cleanup(func() { must(t, c.Close(context.Background())) })
	return c
}

// proxied returns a client behind a proxy of its own.
func proxied(t testing.TB, o *zk.Options, addr string) (*dlock.Client, *faultnet.Proxy) {
	t.Helper()
	p := proxyTo(t, addr)
	return connect(t, o, p.Addr()), p
}

func proxyTo(t testing.TB, addr string) *faultnet.Proxy {
	t.Helper()
	p, err := faultnet.Listen(addr)
	must(t, err)
	p.SetFraming(faultnet.ZooKeeper)
	t.Cleanup(func() { p.Close() })
	return p
}

// operator returns the driver's own connection, as an operator would use.
func operator(t testing.TB, addr string) *gozk.Conn {
	t.Helper()
	conn, _, err := gozk.Connect([]string{addr}, 10*time.Second, gozk.WithLogInfo(false), gozk.WithLogger(quiet{}), gozk.WithDialer(server.DialImpatiently))
	must(t, err)
	t.Cleanup(conn.Close)
	must(t, conn.AddAuth("digest", []byte("super:"+superPassword)))
	return conn
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

// nodes lists the children of the lock's node, none if there is no such node.
func nodes(t testing.TB, conn *gozk.Conn, name string) []string {
	t.Helper()
	var children []string
	err := server.WhenConnected(gozk.ErrNoServer, func() (err error) {
		children, _, err = conn.Children(rootOf(t) + "/" + name)
		return err
	})
	if err != nil && err != gozk.ErrNoNode {
		t.Fatal(err)
	}
	return children
}

func queued(t testing.TB, conn *gozk.Conn, name string, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d nodes of %s", n, name), func() bool { return len(nodes(t, conn, name)) == n })
}

// A call is a Lock under way.
type call struct {
	done   chan struct{}
	lease  *dlock.Lease
	err    error
	cancel context.CancelFunc
}

func start(t testing.TB, l dlock.Locker) *call {
	ctx, cancel := context.WithCancel(testContext(t))
	c := &call{done: make(chan struct{}), cancel: cancel}
	go func() {
		defer close(c.done)
		c.lease, c.err = l.Lock(ctx)
	}()
	return c
}

func (c *call) granted(t testing.TB) *dlock.Lease {
	t.Helper()
	receive(t, "granted", c.done)
	must(t, c.err)
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

func wantError(t testing.TB, err error, kinds ...error) {
	t.Helper()
	for _, kind := range kinds {
		if !errors.Is(err, kind) {
			t.Fatalf("error is %v, want one that is %v", err, kind)
		}
	}
}

func lock(t testing.TB, l dlock.Locker) *dlock.Lease {
	t.Helper()
	lease, err := l.Lock(testContext(t))
	must(t, err)
	return lease
}

func unlock(t testing.TB, lease *dlock.Lease) {
	t.Helper()
	must(t, lease.Unlock(testContext(t)))
}

// recovers takes a lock and gives it back, as soon as the servers answer again.
func recovers(t testing.TB, l dlock.Locker) {
	t.Helper()
	eventually(t, "the servers answer again", func() bool {
		lease, err := l.Lock(testContext(t))
		if err != nil && !errors.Is(err, dlock.ErrUnavailable) {
			t.Fatal(err)
		}
		return err == nil && lease.Unlock(testContext(t)) == nil
	})
}

// command runs one of the server's four-letter commands.
func command(t testing.TB, addr, word string) string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	must(t, err)
	defer conn.Close()
	must(t, conn.SetDeadline(time.Now().Add(limit)))
	_, err = io.WriteString(conn, word)
	must(t, err)
	reply, err := io.ReadAll(conn)
	must(t, err)
	return string(reply)
}
