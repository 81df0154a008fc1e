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
	time.Sleep(time.Second)
	more := runtime.NumGoroutine() - before
	asked := evaluated(t, masters[2])
	time.Sleep(2 * time.Second)
	idle := evaluated(t, masters[2]) - asked
	if more > 100 || idle > 100 {
		t.Errorf("%d goroutines are left of %d readers, and they ask %d times in 2 s", more, readers, idle)
	}
}
