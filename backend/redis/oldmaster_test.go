package redis

import (
	"context"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/server"
)

// TestConnectionsOfAnOldMaster has a replica take over behind an address that stays, while a client
// has many idle connections to the old master, which live on. A request goes past all of them at
// once, and none is answered by what a replica has.
func TestConnectionsOfAnOldMaster(t *testing.T) {
	for _, replicas := range []int{0, 1} {
		t.Run(strconv.Itoa(replicas)+" replicas", func(t *testing.T) {
			t.Parallel()
			const idle = 20
			ctx, servers := within(t), server.StartAll(t, server.Redis{}, server.Redis{})
			old, next := plainClient(t, servers[0]), plainClient(t, servers[1])
			follow(t, next, servers[0])
			awaitAcks(t, old)
			var addr atomic.Value
			addr.Store(servers[0].Addr())
			client := redis.NewClient(&redis.Options{
				DisableIdentity: true, PoolSize: idle + 1,
				Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
					return new(net.Dialer).DialContext(ctx, network, addr.Load().(string))
				},
			})
			t.Cleanup(func() { _ = client.Close() })
			b := New(client, &Options{Replicas: replicas})
			t.Cleanup(func() { _ = b.Close(within(t)) })
			r := requestOf(t, "client", backend.Exclusive)
			r.TTL = 20 * time.Second
			h := must[*backend.Hold](t)(b.Acquire(ctx, r))
			var conns [idle]*redis.Conn
			for i := range conns {
				conns[i] = client.Conn()
				must[string](t)(conns[i].Ping(ctx).Result())
			}
			for _, c := range conns {
				must[any](t)(nil, c.Close())
			}
			eventually(t, "the replica has the hold", func() bool { return next.HExists(ctx, mainKey(r.Name), "o").Val() })
			must[any](t)(next.Do(ctx, "replicaof", "no", "one").Result())
			addr.Store(servers[1].Addr())
			follow(t, old, servers[1])
			other := requestOf(t, "other", backend.Exclusive)
			other.Wait = false
			_, err := b.Acquire(ctx, other)
			is(t, err, backend.ErrHeld)
			soon, cancel := context.WithTimeout(ctx, 8*time.Second) // a pause for each would take longer
			defer cancel()
			must[any](t)(nil, b.Release(soon, h))
		})
	}
}

// TestPingPastConnectionsOfAnOldMaster has a replica take over behind an address that stays, while
// pipelines, as a ping is one, have idle connections to the old master, which live on. What that says
// of itself is no word of the server that the address stands for, also where the user may only ask.
func TestPingPastConnectionsOfAnOldMaster(t *testing.T) {
	for _, user := range []string{"default", "reader"} {
		t.Run(user, func(t *testing.T) {
			t.Parallel()
			pingPastConnectionsOfAnOldMaster(t, user)
		})
	}
}

func pingPastConnectionsOfAnOldMaster(t *testing.T, user string) {
	b, next := withConnectionsToAnOldMaster(t, user)
	must[string](t)(b.Ping(within(t)))
	must[any](t)(next.Do(t.Context(), "replicaof", "127.0.0.1", "1").Result())
	_, err := b.Ping(within(t))
	is(t, err, backend.ErrUnavailable) // the address stands for a replica
}

// TestExaminePastConnectionsOfAnOldMaster has the server looked at that an address stands for.
func TestExaminePastConnectionsOfAnOldMaster(t *testing.T) {
	t.Parallel()
	b, next := withConnectionsToAnOldMaster(t, "default")
	faults := func() (subjects []string) {
		must[any](t)(nil, b.Examine(within(t), func(f backend.Finding) {
			if f.Level == backend.Fault {
				subjects = append(subjects, f.Subject)
			}
		}))
		return subjects
	}
	if found := faults(); len(found) > 0 {
		t.Errorf("%v of a master", found)
	}
	must[any](t)(next.Do(t.Context(), "replicaof", "127.0.0.1", "1").Result())
	if found := faults(); !slices.Contains(found, "scripts") || !slices.Contains(found, "role") {
		t.Errorf("only %v of a replica", found)
	}
}

// TestExamineByAReaderPastConnectionsOfAnOldMaster has a user look who may not write.
func TestExamineByAReaderPastConnectionsOfAnOldMaster(t *testing.T) {
	t.Parallel()
	b, _ := withConnectionsToAnOldMaster(t, "reader")
	must[any](t)(nil, b.Examine(within(t), func(f backend.Finding) {
		if f.Subject == "role" && f.Level != backend.OK {
			t.Errorf("of a master: %s", f.Text)
		}
	}))
}

// withConnectionsToAnOldMaster returns a client of a user that has idle connections to a server that has become a
// replica, and the server that its address stands for.
func withConnectionsToAnOldMaster(t *testing.T, user string) (*Backend, *redis.Client) {
	t.Helper()
	const idle = 5
	ctx, servers := within(t), server.StartAll(t, server.Redis{}, server.Redis{})
	old, next := plainClient(t, servers[0]), plainClient(t, servers[1])
	for _, c := range []*redis.Client{old, next} {
		must[any](t)(c.Do(ctx, "acl", "setuser", "reader", "on", ">secret", "~dlock:*", "~gate", "+blpop",
			"+hello", "+auth", "+ping", "+select", "+eval_ro", "+info", "+time").Result())
	}
	var addr atomic.Value
	addr.Store(servers[0].Addr())
	client := redis.NewClient(&redis.Options{
		DisableIdentity: true, Username: user, Password: "secret",
		Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, addr.Load().(string))
		},
	})
	t.Cleanup(func() { _ = client.Close() })
	b := New(client, nil)
	b.inspectOnly = user == "reader"
	t.Cleanup(func() { _ = b.Close(within(t)) })
	must[string](t)(client.Ping(ctx).Result()) // on a connection for single commands
	var pipelines sync.WaitGroup
	for range idle {
		pipelines.Go(func() {
			p := client.Pipeline()
			p.BLPop(ctx, 0, "gate")
			_, _ = p.Exec(ctx)
		})
	}
	eventually(t, "each has a connection", func() bool {
		return parseInfo(old.Info(ctx, "clients").Val())["blocked_clients"] == strconv.Itoa(idle)
	})
	must[int64](t)(old.RPush(ctx, "gate", 1, 2, 3, 4, 5).Result())
	pipelines.Wait()
	must[string](t)(b.Ping(ctx))
	addr.Store(servers[1].Addr())
	follow(t, old, servers[1])
	return b, next
}

// follow has a server be a replica of another, and waits until it has its data.
func follow(t testing.TB, c *redis.Client, master *server.Server) {
	t.Helper()
	host, port, _ := net.SplitHostPort(master.Addr())
	must[any](t)(c.Do(t.Context(), "replicaof", host, port).Result())
	eventually(t, "the replica follows", func() bool {
		return parseInfo(c.Info(t.Context(), "replication").Val())["master_link_status"] == "up"
	})
}
