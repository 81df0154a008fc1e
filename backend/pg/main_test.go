package pg

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/faultnet"
	"github.com/dlock-go/dlock/internal/server"
	"github.com/jackc/pgx/v5"
)

// limit is how long a test waits for something that must happen.
const limit = 2 * time.Minute

// shared is the server of all tests that do no harm to it.
var shared *server.Server

func TestMain(m *testing.M) {
	if url, is := os.LookupEnv(tenantEnv); is {
		if err := tenant(url); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	var err error
	if shared, err = server.New(testServer); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := shared.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

var testServer = server.Postgres{Settings: []string{"max_locks_per_transaction=256", "max_connections=120"}}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	return ctx
}

// configOf is how the superuser reaches the server at addr.
func configOf(t testing.TB, addr string) *pgx.ConnConfig {
	t.Helper()
	cfg, err := pgx.ParseConfig("postgres://postgres@" + addr + "/postgres?sslmode=disable")
	must(t, err)
	return cfg
}

// A peer is one client of a server, as another process would be.
type peer struct {
	*dlock.Client
	backend *Backend
	proxy   *faultnet.Proxy
}

// newPeer makes a client that reaches the server at addr through a proxy.
func newPeer(t testing.TB, addr string, o Options, ttl time.Duration) *peer {
	t.Helper()
	return newPeerOf(t, addr, o, dlock.Options{TTL: ttl})
}

func newPeerOf(t testing.TB, addr string, o Options, client dlock.Options) *peer {
	t.Helper()
	proxy, err := faultnet.Listen(addr)
	must(t, err)
	proxy.SetFraming(faultnet.Postgres)
	b, err := New(testContext(t), configOf(t, proxy.Addr()), &o)
	must(t, err)
	c, err := dlock.New(b, &client)
	must(t, err)
	t.Cleanup(func() {
		must(t, proxy.Heal())
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		_ = c.Close(ctx)
		must(t, proxy.Close())
	})
	return &peer{c, b, proxy}
}

// admin is a connection to ask the server how things are.
func admin(t testing.TB, addr string) *pgx.Conn {
	t.Helper()
	c, err := pgx.ConnectConfig(testContext(t), configOf(t, addr))
	must(t, err)
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// execute runs statements, one after the other.
func execute(t testing.TB, c *pgx.Conn, statements ...string) {
	t.Helper()
	for _, sql := range statements {
		_, err := c.Exec(testContext(t), sql)
		must(t, err)
	}
}

func number(t testing.TB, c *pgx.Conn, sql string, args ...any) int {
	t.Helper()
	var n int
	must(t, c.QueryRow(testContext(t), sql, args...).Scan(&n))
	return n
}

// inLocks counts the entries for name that are granted, or that wait.
func inLocks(t testing.TB, c *pgx.Conn, b *Backend, name string, granted bool) int {
	t.Helper()
	key := uint64(b.key(name))
	return number(t, c, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1
		AND classid = $1::int8::oid AND objid = $2::int8::oid AND granted = $3`,
		int64(key>>32), int64(uint32(key)), granted)
}

// eventually waits until ok is true.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not after %v: %s", limit, what)
		}
	}
}

func lock(t testing.TB, l dlock.Locker) *dlock.Lease {
	t.Helper()
	lease, err := l.Lock(testContext(t))
	must(t, err)
	return lease
}

func unlock(t testing.TB, l *dlock.Lease) {
	t.Helper()
	must(t, l.Unlock(testContext(t)))
}

// locking locks in the background.
func locking(t testing.TB, l dlock.Locker) <-chan *dlock.Lease {
	out := make(chan *dlock.Lease, 1)
	ctx := testContext(t)
	go func() {
		defer close(out)
		lease, err := l.Lock(ctx)
		if err != nil {
			t.Error(err)
			return
		}
		out <- lease
	}()
	return out
}

func receive[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(limit):
		t.Fatalf("not after %v: %s", limit, what)
		panic("unreachable")
	}
}

// nameOf is a lock's name that only this test uses.
func nameOf(t testing.TB, suffix ...string) string {
	return t.Name() + strings.Join(suffix, "")
}

// connections is how many the client has.
func (b *Backend) connections() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.live)
}

// works takes a lock and gives it back.
func works(t testing.TB, l dlock.Locker) {
	t.Helper()
	unlock(t, lock(t, l))
}
