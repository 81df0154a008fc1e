package conformance_test

import (
	"bytes"
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	lockredis "github.com/dlock-go/dlock/backend/redis"
	"github.com/dlock-go/dlock/conformance"
	"github.com/dlock-go/dlock/internal/faultnet"
	"github.com/dlock-go/dlock/internal/server"
)

// untouched is a silence after which nodes replace a master: longer than any
// property takes, because the suite is about one that comes back.
const untouched = time.Minute

// A redisGroup is several servers that form one service.
type redisGroup struct {
	*redisData
	servers []*server.Server
	// connect returns a client that reaches every address by dial.
	connect func(dial dialer) redis.UniversalClient
}

type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

func sentinelHarness(t testing.TB) conformance.Harness {
	w := server.StartWatched(t, 1, server.Redis{AppendOnly: true}, untouched)
	g := &redisGroup{
		redisData: lookAt(t, w.Primary),
		servers:   append([]*server.Server{w.Primary}, w.Sentinels...),
		connect: func(dial dialer) redis.UniversalClient {
			return redis.NewFailoverClient(&redis.FailoverOptions{
				MasterName: server.PrimaryName, SentinelAddrs: addrs(w.Sentinels),
				Dialer: dial, ContextTimeoutEnabled: true, ReadTimeout: 2 * time.Second,
				MaxRetries: -1, DialerRetries: 1, DisableIdentity: true,
			})
		},
	}
	h := g.harness("redis-sentinel", "redis+sentinel", strings.Join(addrs(w.Sentinels), ","), "/"+server.PrimaryName)
	h.Restart = func(t testing.TB) {
		must(t, w.Primary.Kill())
		must(t, w.Primary.Restart(true))
	}
	return h
}

func clusterHarness(t testing.TB) conformance.Harness {
	c := server.StartCluster(t, server.Redis{AppendOnly: true}, untouched)
	cluster := func(dial dialer) redis.UniversalClient {
		return redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: addrs(c.Masters), Dialer: dial, ContextTimeoutEnabled: true, ReadTimeout: 2 * time.Second,
			DialerRetries: 1, DisableIdentity: true,
		})
	}
	g := &redisGroup{
		redisData: lookAt(t, c.Masters...),
		servers:   append(append([]*server.Server{}, c.Masters...), c.Replicas...),
		connect:   cluster,
	}
	g.admin = cluster(nil)
	t.Cleanup(func() { _ = g.admin.Close() })
	h := g.harness("redis-cluster", "redis+cluster", strings.Join(addrs(c.Masters), ","), "")
	h.Polls = strings.HasPrefix(h.Version, "6.") // there are no sharded messages
	h.Restart = func(t testing.TB) {
		for _, s := range c.Masters {
			must(t, s.Kill())
		}
		for _, s := range c.Masters {
			must(t, s.Restart(true))
		}
		must(t, c.Await())
	}
	return h
}

func addrs(servers []*server.Server) (all []string) {
	for _, s := range servers {
		all = append(all, s.Addr())
	}
	return all
}

// harness is what the groups have in common.
func (g *redisGroup) harness(name, scheme, hosts, path string) conformance.Harness {
	return conformance.Harness{
		Name:     name,
		Version:  g.servers[0].Version(),
		Scheme:   scheme,
		URL:      scheme + "://" + hosts + path,
		TTL:      *ttl,
		Leased:   true,
		Open:     g.open,
		Evict:    g.evict,
		Ops:      g.ops,
		Heard:    g.heard,
		Waiting:  g.waiting,
		Residue:  g.residue,
		State:    g.state,
		Foreign:  g.foreign,
		Wipe:     g.wipe,
		BadLogin: scheme + "://dlock:wrong@" + hosts + path,
		Nowhere:  scheme + "://127.0.0.1:1" + path,
		Optional: []string{"BatchReleaser", "Breaker", "Downgrader", "Expirer", "Inspector", "Pinger", "Reenterer", "Renewer", "TokenRegister", "Transferer"},
		Borrow: func(t testing.TB) (backend.Backend, func() error) {
			c := g.connect(nil)
			t.Cleanup(func() { _ = c.Close() })
			return lockredis.New(c, nil), func() error { return c.Ping(context.Background()).Err() }
		},
	}
}

// open gives each client a proxy before every server: it is cut off from all.
func (g *redisGroup) open(t testing.TB, o dlock.Options) *conformance.Peer {
	proxies := make(map[string]*faultnet.Proxy)
	for _, s := range g.servers {
		proxy, err := faultnet.Listen(s.Addr())
		must(t, err)
		proxy.SetFraming(faultnet.RESP)
		proxies[s.Addr()] = proxy
	}
	rdb := g.connect(func(ctx context.Context, network, addr string) (net.Conn, error) {
		return proxies[addr].DialContext(ctx, network, addr)
	})
	b := lockredis.New(rdb, nil)
	c, err := dlock.New(b, &o)
	must(t, err)
	return &conformance.Peer{
		Client:    c,
		Backend:   b,
		Cut:       func() func() { return cutAll(proxies) },
		Delay:     func(d time.Duration) { delayAll(proxies, d) },
		DropReply: func() { dropOne(proxies) },
		Closed: func() {
			must(t, rdb.Close())
			for _, proxy := range proxies {
				must(t, proxy.Close())
			}
		},
	}
}

func cutAll(proxies map[string]*faultnet.Proxy) (heal func()) {
	for _, proxy := range proxies {
		proxy.Blackhole(faultnet.BothWays)
	}
	return func() {
		for _, proxy := range proxies {
			proxy.Restore(faultnet.BothWays)
		}
	}
}

func delayAll(proxies map[string]*faultnet.Proxy, d time.Duration) {
	for _, proxy := range proxies {
		proxy.Delay(faultnet.ToClient, d, 0)
	}
}

// dropOne loses the reply to the next script, whichever server gets it.
func dropOne(proxies map[string]*faultnet.Proxy) {
	var done atomic.Bool
	for _, proxy := range proxies {
		proxy.DropReplyAfter(func(request []byte) bool {
			return bytes.Contains(request, []byte("evalsha")) && done.CompareAndSwap(false, true)
		})
	}
}
