package integration

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/dlock-go/dlock"
	_ "github.com/dlock-go/dlock/backend/file"
	_ "github.com/dlock-go/dlock/backend/redis"
	"github.com/dlock-go/dlock/internal/server"
)

func TestMain(m *testing.M) {
	logging.Disable() // the Redis client tells stderr of every broken connection
	// Pebble believes every challenge, at once, and refuses no nonce for exercise.
	for _, set := range []string{"PEBBLE_VA_ALWAYS_VALID", "PEBBLE_VA_NOSLEEP"} {
		os.Setenv(set, "1")
	}
	os.Setenv("PEBBLE_WFE_NONCEREJECT", "0")
	os.Exit(m.Run())
}

// limit is how long a test waits for what has to come.
const limit = time.Minute

// A place is where the clients of a test have their locks.
type place struct {
	url      string
	takeAway func(t testing.TB, name string) // from its holder
}

// onEach runs f on every backend.
func onEach(t *testing.T, f func(*testing.T, *place)) {
	t.Run("redis", func(t *testing.T) {
		_, p := startRedis(t)
		p.takeAway = func(t testing.TB, name string) {
			client := p.client(t)
			now, err := client.Inspect(t.Context(), name)
			must(t, err)
			must(t, client.Break(t.Context(), name, now.Holders[0].Token))
		}
		f(t, p)
	})
	t.Run("file", func(t *testing.T) {
		dir := t.TempDir()
		f(t, &place{url: "file://" + filepath.ToSlash(dir), takeAway: func(t testing.TB, _ string) {
			files, err := filepath.Glob(filepath.Join(dir, "*"))
			must(t, err)
			for _, file := range files {
				must(t, os.RemoveAll(file))
			}
		}})
	})
}

func startRedis(t testing.TB) (*server.Server, *place) {
	s := server.Start(t, server.Redis{})
	return s, &place{url: "redis://" + s.Addr()}
}

// client returns a client of its own, as that of another machine.
func (p *place) client(t testing.TB) *dlock.Client {
	t.Helper()
	client, err := dlock.Open(t.Context(), p.url, &dlock.Options{TTL: 3 * time.Second, Prefix: "contrib/"})
	must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // do not wait for minimum holds
		_ = client.Close(ctx)
	})
	return client
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// await waits until ok.
func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

// receive waits for what c brings.
func receive[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(limit):
		t.Fatalf("not within %v: %s", limit, what)
		panic("unreachable")
	}
}
