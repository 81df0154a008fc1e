package conformance_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/quorum"
	lockredis "github.com/dlock-go/dlock/backend/redis"
	"github.com/dlock-go/dlock/conformance"
	"github.com/dlock-go/dlock/internal/faultnet"
	"github.com/dlock-go/dlock/internal/server"
)

// masters are Redis servers that know nothing of one another.
type masters struct {
	servers []*server.Server
	data    []*redisData // of each
}

func redlockHarness(t testing.TB) conformance.Harness {
	m := &masters{servers: server.StartAll(t, server.Copies(3, server.Redis{AppendOnly: true})...)}
	for _, s := range m.servers {
		m.data = append(m.data, lookAt(t, s))
	}
	m.vouch(t)
	hosts := strings.Join(addrs(m.servers), ",")
	return conformance.Harness{
		Name:           "redlock",
		Version:        m.servers[0].Version(),
		Scheme:         "redlock",
		URL:            "redlock://" + hosts,
		Hosts:          "h1,h2,h3",
		TTL:            *ttl,
		Leased:         true,
		Open:           m.open,
		Evict:          func(t testing.TB, name string) { m.each(func(d *redisData) { d.evict(t, name) }) },
		Ops:            m.ops,
		Heard:          m.heard,
		Waiting:        m.waiting,
		Residue:        m.residue,
		State:          m.state,
		Foreign:        m.foreign,
		Restart:        m.restart,
		Wipe:           m.wipe,
		BadLogin:       "redlock://dlock:wrong@" + hosts,
		Nowhere:        "redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3",
		OrderByClients: true,
		ManyServers:    true,
		Optional:       []string{"BatchReleaser", "Breaker", "Downgrader", "Expirer", "Inspector", "MinTTLer", "Pinger", "Reenterer", "Renewer"},
		Borrow:         m.borrow,
	}
}

func (m *masters) state(t testing.TB) string {
	var all []string
	m.each(func(d *redisData) { all = append(all, d.state(t)) })
	return strings.Join(all, " ")
}

func (m *masters) each(f func(*redisData)) {
	for _, d := range m.data {
		f(d)
	}
}

// vouch has the servers vote at once: they have forgotten nothing that counts.
func (m *masters) vouch(t testing.TB) {
	m.each(func(d *redisData) {
		must(t, d.admin.HSet(context.Background(), "dlock:boot", "since", 1, "run", "-").Err())
	})
}

// open gives each client a proxy before every server.
func (m *masters) open(t testing.TB, o dlock.Options) *conformance.Peer {
	proxies := make(map[string]*faultnet.Proxy)
	var hosts []string
	for _, s := range m.servers {
		proxy, err := faultnet.Listen(s.Addr())
		must(t, err)
		proxy.SetFraming(faultnet.RESP)
		proxies[s.Addr()] = proxy
		hosts = append(hosts, proxy.Addr())
	}
	u, err := backend.ParseURL("redlock://" + strings.Join(hosts, ","))
	must(t, err)
	b, err := backend.Open(t.Context(), backend.Config{URL: u, TTL: o.TTL})
	must(t, err)
	c, err := dlock.New(b, &o)
	must(t, err)
	return &conformance.Peer{
		Client:  c,
		Backend: b,
		Cut:     func() func() { return cutAll(proxies) },
		Delay:   func(d time.Duration) { delayAll(proxies, d) },
		DropReply: func() { // of each: one alone would not matter
			for _, proxy := range proxies {
				proxy.DropReplyAfter(func(request []byte) bool { return bytes.Contains(request, []byte("evalsha")) })
			}
		},
		Closed: func() {
			for _, proxy := range proxies {
				must(t, proxy.Close())
			}
		},
	}
}

// ops is what the busiest server has been sent: a request goes to each of them
// at once. Whoever has the answers that it needs does not wait for the others,
// so what is still on its way is waited for.
func (m *masters) ops() int64 {
	for last := m.sent(); ; {
		time.Sleep(10 * time.Millisecond)
		now := m.sent()
		if slices.Equal(now, last) {
			return slices.Max(now)
		}
		last = now
	}
}

func (m *masters) sent() (each []int64) {
	m.each(func(d *redisData) { each = append(each, d.ops()) })
	return each
}

func (m *masters) heard(t testing.TB) (stop func() []string) {
	var stops []func() []string
	m.each(func(d *redisData) { stops = append(stops, d.heard(t)) })
	return func() (all []string) {
		for _, stop := range stops {
			all = append(all, stop()...)
		}
		return all
	}
}

// waiting is how many clients wait, at whichever server: at one of them, unless it is
// too busy to answer some of them in time.
func (m *masters) waiting(t testing.TB, name string) int {
	clients := make(map[string]bool)
	m.each(func(d *redisData) {
		alive := &redis.ZRangeBy{Min: fmt.Sprint(time.Now().UnixMilli()), Max: "+inf"} // others are passed over
		ids, err := d.admin.ZRangeByScore(context.Background(), redisKey(name)+":a", alive).Result()
		must(t, err)
		for _, id := range ids {
			clients[strings.Split(id, ":")[1]] = true
		}
	})
	return len(clients)
}

// residue lists what is left of one property, because no property empties all of
// the servers: what others have killed or cut off is kept for ten minutes, if
// nobody touches it. Ids that must not come back are kept for two.
func (m *masters) residue(t testing.TB) (left []string) {
	m.each(func(d *redisData) { left = append(left, d.residue(t)...) })
	mine := strings.TrimSuffix(redisKey(t.Name()), "}")
	return slices.DeleteFunc(left, func(key string) bool {
		ofLock := strings.HasPrefix(key, "dlock:{")
		return ofLock && (!strings.HasPrefix(key, mine) || strings.HasSuffix(key, ":x"))
	})
}

func (m *masters) foreign(t testing.TB, name string) func() error {
	var all []func() error
	m.each(func(d *redisData) { all = append(all, d.foreign(t, name)) })
	return func() (err error) {
		for _, untouched := range all {
			err = errors.Join(err, untouched())
		}
		return err
	}
}

func (m *masters) restart(t testing.TB) {
	for _, s := range m.servers {
		must(t, s.Kill())
	}
	for _, s := range m.servers {
		must(t, s.Restart(true))
	}
	m.vouch(t) // what they have acknowledged survives their process
}

// wipe has one server forget everything, which a quorum survives. It is trusted
// again after the property.
func (m *masters) wipe(t testing.TB) {
	m.data[0].wipe(t)
	t.Cleanup(func() { m.vouch(t) })
}

func (m *masters) borrow(t testing.TB) (backend.Backend, func() error) {
	var clients []*redis.Client
	var nodes []backend.Backend
	for _, s := range m.servers {
		c := redis.NewClient(&redis.Options{Addr: s.Addr(), DisableIdentity: true})
		t.Cleanup(func() { _ = c.Close() })
		clients = append(clients, c)
		nodes = append(nodes, lockredis.New(c, nil))
	}
	b, err := quorum.New(nodes, nil)
	must(t, err)
	return b, func() (err error) {
		for _, c := range clients {
			err = errors.Join(err, c.Ping(context.Background()).Err())
		}
		return err
	}
}
