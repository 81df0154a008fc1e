package redis

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/server"
)

// limit bounds every wait of a test: one that passes does not come near it, on however
// busy a machine.
const limit = 2 * time.Minute

// shared is the server of the tests that do it no harm.
var shared *server.Server

// stray has what the client library logs of clients that have no logger of their own.
var stray warnings

func TestMain(m *testing.M) {
	// Of clients that tests make with it, the client library tells stderr of every broken connection.
	redis.SetLogger(driverLog{log.New(&stray, "", 0)})
	if err := flag.Set("test.parallel", "8"); err != nil { // tests wait more than they work
		panic(err)
	}
	s, err := server.New(server.Redis{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	shared = s
	code := m.Run()
	if err := errors.Join(s.Close(), sharedCluster.close()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// plainClient is a connection to look at the server with.
func plainClient(t testing.TB, s *server.Server) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: s.Addr(), DisableIdentity: true})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// openClient is one party on s.
func openClient(t testing.TB, s *server.Server, o *dlock.Options) *dlock.Client {
	t.Helper()
	return openURL(t, "redis://"+s.Addr(), o)
}

func openURL(t testing.TB, url string, o *dlock.Options) *dlock.Client {
	t.Helper()
	c, err := dlock.Open(t.Context(), url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return c
}

func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	return ctx
}

func must[T any](t testing.TB) func(T, error) T {
	t.Helper()
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func is(t testing.TB, err, kind error) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("got %v, want %v", err, kind)
	}
}

// eventually waits until cond holds.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	const longest = 20 * time.Millisecond // between two looks: most of them ask a server
	pause := time.Millisecond
	for end := time.Now().Add(limit); !cond(); time.Sleep(pause) {
		pause = min(pause*3/2, longest)
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// rawScript is a script of a test's own.
func rawScript(source string) *script {
	sum := sha1.Sum([]byte(source))
	return &script{source: source, sha: hex.EncodeToString(sum[:])}
}

func mainKey(name string) string { return string(lockKey(name)) }
