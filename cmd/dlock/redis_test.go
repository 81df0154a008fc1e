//go:build unix

package main

import (
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/internal/server"
)

// newRedisShell is a shell with a Redis server of its own.
func newRedisShell(t *testing.T) (*shell, *redis.Client) {
	t.Helper()
	srv := server.Start(t, server.Redis{})
	c := redis.NewClient(&redis.Options{Addr: srv.Addr(), DisableIdentity: true})
	t.Cleanup(func() { _ = c.Close() })
	return newShell(t, urlVariable+"=redis://"+srv.Addr()), c
}

func TestRunOnRedis(t *testing.T) {
	t.Parallel()
	s, c := newRedisShell(t)
	first := s.start("run", "-t", "6s", "job", "--", "sh", "-c", "echo $DLOCK_TOKEN > held; exec sleep 300")
	s.await("held")
	s.start("run", "-n", "job", "--", "true").expect(exitHeld, "held")
	s.start("run", "-n", "other", "--", "true").expect(0, "")

	second := s.start("run", "job", "--", "sh", "-c", "test $DLOCK_TOKEN -gt $(cat held) && exit 5")
	first.signal(syscall.SIGKILL) // its lease ends by itself
	second.expect(5, "")
	expectNoHolds(t, c)
}

func TestDemoOnRedis(t *testing.T) {
	s, c := newRedisShell(t)
	p := s.start("demo", "--sales=1000")
	p.expect(0, "")
	if l := tableLine(t, p, "with lock"); l.sold != 1000 || l.oversold != 0 {
		t.Errorf("with lock: %+v", l)
	}
	if n := c.DBSize(t.Context()).Val(); n == 0 {
		t.Error("the backend was not used")
	}
	expectNoHolds(t, c)
}

// A replica that shows no lock may not have heard of it: whoever asks it is told so.
func TestFreeAtAReplica(t *testing.T) {
	t.Parallel()
	s, c := newRedisShell(t)
	if err := c.Do(t.Context(), "replicaof", "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"show", "job"}, {"show", "--json", "job"}, {"ls"}} {
		s.start(args...).expect(0, "this may be wrong: the backend is not available: the server is a replica")
	}
	_, p := s.run("unlock", "--force", "--yes", "job")
	if said := p.err.String(); p.wait() != exitFailed || !strings.Contains(said, "is a replica") || !strings.Contains(said, "nobody holds") {
		t.Errorf("%q", said)
	}
	s.start("ping").expect(exitUnavailable, "the server is a replica")
}
