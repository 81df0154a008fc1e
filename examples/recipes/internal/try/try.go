// Package try has what the tests of all recipes need.
package try

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
	_ "github.com/dlock-go/dlock/backend/pg"
	_ "github.com/dlock-go/dlock/backend/redis"
	"github.com/dlock-go/dlock/internal/server"
)

// Redis starts a server for one test and returns its URL.
func Redis(t testing.TB) (url string, s *server.Server) {
	s = server.Start(t, server.Redis{})
	return "redis://" + s.Addr(), s
}

// Postgres starts a server for one test and returns the URL of its database.
func Postgres(t testing.TB) (url string, s *server.Server) {
	s = server.Start(t, server.Postgres{})
	return "postgres://postgres@" + s.Addr() + "/postgres?sslmode=disable", s
}

// Open returns a client that is closed at the end of the test: one instance of a program.
func Open(t testing.TB, url string, o *dlock.Options) *dlock.Client {
	t.Helper()
	client, err := dlock.Open(t.Context(), url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // do not wait for the rest of a minimum hold
		_ = client.Close(ctx)
	})
	return client
}

// Await asks until is is true, for a minute.
func Await(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never: " + what)
		}
	}
}

// Receive returns the next value of a channel, for which it waits a minute.
func Receive[T any](t testing.TB, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(time.Minute):
		t.Fatal("never: " + what)
		panic("unreachable")
	}
}

// Waiters is how many wait for a lock.
func Waiters(t testing.TB, client *dlock.Client, name string) int {
	t.Helper()
	lock, err := client.Inspect(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return len(lock.Waiters)
}

// TwoTokens has a holder lose a lock that another client takes away from it, as a holder
// does that is stopped for too long, and returns its token and that of the next holder.
func TwoTokens(t testing.TB, url, name string) (stale, live uint64) {
	t.Helper()
	first, err := Open(t, url, nil).Mutex(name).Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	other := Open(t, url, nil)
	if err := other.Break(t.Context(), name, first.Token()); err != nil {
		t.Fatal(err)
	}
	second, err := other.Mutex(name).Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return first.Token(), second.Token()
}

// Connect returns a client of Redis itself.
func Connect(t testing.TB, url string) *redis.Client {
	t.Helper()
	options, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(options)
	t.Cleanup(func() { rdb.Close() })
	return rdb
}

// Database returns a client of Postgres itself.
func Database(t testing.TB, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// Number returns the only value of a query.
func Number(t testing.TB, db *sql.DB, query string) (n int) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// LateWrites has two holders of a lock write, the first one also when it is late. What
// stays is "shipped" by the second.
func LateWrites(t testing.TB, first, second uint64, errLate error, save func(state string, token uint64) error) {
	t.Helper()
	for _, write := range []struct {
		state string
		token uint64
		want  error
	}{
		{"paid", first, nil}, // the other one has not written yet: harmless
		{"packed", second, nil},
		{"shipped", second, nil}, // a holder may write as often as it likes
		{"cancelled", first, errLate},
		{"lost", 0, errLate}, // the token of no lock at all
	} {
		if err := save(write.state, write.token); !errors.Is(err, write.want) {
			t.Errorf("%s: got %v, want %v", write.state, err, write.want)
		}
	}
}

// Migrates has three instances of a program wait for the lock "migrations", migrate after
// that, and end.
func Migrates(t *testing.T, lockURL string, db *sql.DB, instance func() error) {
	t.Helper()
	other := Open(t, lockURL, nil)
	lease, err := other.Mutex("migrations").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	const instances = 3
	for range instances {
		go func() { ended <- instance() }()
	}
	Await(t, "all wait", func() bool { return Waiters(t, other, "migrations") == instances })
	if n := Number(t, db, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"); n != 0 {
		t.Error("an instance has begun without the lock")
	}
	if err := lease.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range instances {
		if err := Receive(t, "the end of an instance", ended); err != nil {
			t.Error(err)
		}
	}
}
