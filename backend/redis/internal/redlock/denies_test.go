package redlock

import (
	"errors"
	"regexp"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/server"
)

// evaluated is how many scripts s has been asked to run.
func evaluated(t *testing.T, s *server.Server) int {
	t.Helper()
	stats, err := admin(t, s).Info(t.Context(), "commandstats").Result()
	ok(t, err)
	m := regexp.MustCompile(`cmdstat_evalsha:calls=(\d+)`).FindStringSubmatch(stats)
	if m == nil {
		return 0
	}
	n, err := strconv.Atoi(m[1])
	ok(t, err)
	return n
}

// A user lacks a right on one of three nodes, by which readers are ended. What that node is asked
// does not grow with the number of readers that have been and gone.
func TestReadersWithoutTheRightToLeave(t *testing.T) {
	masters := startMasters(t, 3, "--save", "")
	vouchFor(t, masters...)
	ok(t, admin(t, masters[2]).Do(t.Context(), "acl", "setuser", "default", "-zrem").Err())
	c := openURL(t, "redlock://"+addresses(masters)+"?dlock.ttl=30s&dlock.maxttl=30s", nil)
	m := c.RWMutex("x")
	before := runtime.NumGoroutine()
	const readers = 1000
	for range readers {
		l, err := m.RLock(t.Context())
		ok(t, err)
		if err := l.Unlock(t.Context()); err != nil && !errors.Is(err, dlock.ErrAuth) { // of a bare majority one denies it
			t.Fatal(err)
		}
	}
	// A busy machine takes a while to get there, and a node is told again for a TTL at least.
	for end := time.Now().Add(20 * time.Second); ; {
		asked := evaluated(t, masters[2])
		time.Sleep(2 * time.Second)
		more, idle := runtime.NumGoroutine()-before, evaluated(t, masters[2])-asked
		if more <= 100 && idle <= 100 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d goroutines are left of %d readers, and they ask %d times in 2 s", more, readers, idle)
		}
	}
}
