// Package try has what the tests of all recipes need.
package try

import (
	"context"
	"testing"
	"time"

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
