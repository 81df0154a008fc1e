package redlock

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/quorum"
	lockredis "github.com/dlock-go/dlock/backend/redis"
	"github.com/dlock-go/dlock/internal/server"
)

// onClients is a client of the quorum on somebody's own clients of the servers, which wait for
// a reply for longer than this test does.
func onClients(t testing.TB, masters []*server.Server) *dlock.Client {
	t.Helper()
	c := clientOf(t, strings.Split(addresses(masters), ","), nil, 0)
	for range 10 {
		cycle(t, c, "x") // it knows how fast the nodes are
	}
	return c
}

// clientOf is a client of the quorum on somebody's own clients of servers.
func clientOf(t testing.TB, hosts []string, o *quorum.Options, ttl time.Duration) *dlock.Client {
	t.Helper()
	var nodes []backend.Backend
	for _, host := range hosts {
		c := redis.NewClient(&redis.Options{Addr: host, DisableIdentity: true, ReadTimeout: wait})
		t.Cleanup(func() { _ = c.Close() })
		nodes = append(nodes, lockredis.New(c, nil))
	}
	b, err := quorum.New(nodes, o)
	ok(t, err)
	c, err := dlock.New(b, &dlock.Options{TTL: ttl})
	ok(t, err)
	return c
}

// Who waits at a server that hangs goes on at another, and a client of that server ends, however
// long the connections wait for a reply.
func TestFrontHangsOnClientsOfOnesOwn(t *testing.T) {
	t.Parallel()
	masters := startMasters(t, 3)
	vouchFor(t, masters...)
	a, b := onClients(t, masters), onClients(t, masters)
	front := masters[frontOf("x", len(masters))]
	l, err := a.Mutex("x").Lock(t.Context())
	ok(t, err)
	done := make(chan error)
	go func() {
		done <- dlock.Do(context.Background(), b.Mutex("x"), func(context.Context, *dlock.Lease) error { return nil })
	}()
	at := admin(t, front)
	eventually(t, "the other waits", func() bool { return at.ZCard(t.Context(), "dlock:{x}:q").Val() > 0 })
	ok(t, front.Pause())
	ok(t, l.Unlock(context.Background()))
	select {
	case err := <-done:
		ok(t, err)
	case <-time.After(wait / 4):
		t.Error("who waits has not got the lock")
	}
	for _, c := range []*dlock.Client{a, b} {
		ended := make(chan error, 1)
		go func() { ended <- c.Close(context.Background()) }()
		select {
		case err := <-ended:
			ok(t, err)
		case <-time.After(wait / 4):
			t.Error("a client does not end")
		}
	}
	ok(t, front.Resume())
}

// Who waits at a server that keeps scripts waiting, and answers all else, goes on at another.
func TestFrontKeepsScriptsWaiting(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(testing.TB, []*server.Server) *dlock.Client{
		"by URL": func(t testing.TB, s []*server.Server) *dlock.Client {
			return openURL(t, "redlock://"+addresses(s), nil)
		},
		"on clients of one's own": onClients,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			masters := startMasters(t, 3)
			vouchFor(t, masters...)
			a, b := open(t, masters), open(t, masters)
			front := admin(t, masters[frontOf("x", len(masters))])
			l, err := a.Mutex("x").Lock(t.Context())
			ok(t, err)
			done := make(chan error, 1)
			go func() {
				done <- dlock.Do(context.Background(), b.Mutex("x"), func(context.Context, *dlock.Lease) error { return nil })
			}()
			eventually(t, "the other waits", func() bool { return front.ZCard(t.Context(), "dlock:{x}:q").Val() > 0 })
			ok(t, front.ConfigResetStat(t.Context()).Err())
			eventually(t, "and pings the front", func() bool {
				return strings.Contains(front.Info(t.Context(), "commandstats").Val(), "cmdstat_ping:")
			})
			ok(t, front.Do(t.Context(), "client", "pause", wait.Milliseconds(), "write").Err())
			ok(t, l.Unlock(context.Background()))
			select {
			case err := <-done:
				ok(t, err)
			case <-time.After(wait / 8):
				t.Error("who waits has not got the lock")
			}
			ok(t, front.Do(t.Context(), "client", "unpause").Err())
		})
	}
}
