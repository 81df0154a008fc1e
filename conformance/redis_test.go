package conformance_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	lockredis "github.com/dlock-go/dlock/backend/redis"
	"github.com/dlock-go/dlock/conformance"
	"github.com/dlock-go/dlock/internal/faultnet"
	"github.com/dlock-go/dlock/internal/server"
)

// leastPrivilege is the user that the package documentation proposes.
const leastPrivilege = "dlock on >secret resetkeys ~dlock:* resetchannels &dlock:* " +
	"-@all +hello +auth +ping +select +client|setname +info +eval +evalsha " +
	"+time +exists +hmget +hset +hdel +pexpire +zadd +zrem +zcard +zscore " +
	"+zrank +zrange +zrevrange +zrangebyscore +zremrangebyscore " +
	"+publish +pubsub|numsub +subscribe +unsubscribe"

func redisHarness(t testing.TB) conformance.Harness {
	return newRedisHarness(t, "redis", "")
}

// redisUserHarness runs as a user who may do no more than is documented.
func redisUserHarness(t testing.TB) conformance.Harness {
	return newRedisHarness(t, "redis-user", "dlock:secret@", append([]string{"--user"}, strings.Fields(leastPrivilege)...)...)
}

func newRedisHarness(t testing.TB, name, login string, args ...string) conformance.Harness {
	s := server.Start(t, server.Redis{AppendOnly: true, Args: args})
	r := &redisServer{
		redisData: lookAt(t, s),
		proxied:   proxied{target: s.Addr(), framing: faultnet.RESP},
		s:         s,
		login:     login,
	}
	return conformance.Harness{
		Name:     name,
		Version:  s.Version(),
		Scheme:   "redis",
		URL:      r.url(s.Addr()),
		TTL:      *ttl,
		Leased:   true,
		Open:     r.open,
		Evict:    r.evict,
		Ops:      r.ops,
		Heard:    r.heard,
		Conns:    r.connections,
		Waiting:  r.waiting,
		Residue:  r.residue,
		State:    r.state,
		Foreign:  r.foreign,
		Restart:  r.restart,
		Durable:  true,
		Wipe:     r.wipe,
		BadLogin: "redis://dlock:wrong@" + s.Addr(),
		Nowhere:  "redis://127.0.0.1:1",
		Optional: []string{"BatchReleaser", "Breaker", "Downgrader", "Expirer", "Inspector", "Pinger", "Reenterer", "Renewer", "TokenRegister", "Transferer"},
		Borrow:   r.borrow,
	}
}

// A redisServer is one server.
type redisServer struct {
	*redisData
	proxied
	s     *server.Server
	login string
}

func (r *redisServer) url(addr string) string { return "redis://" + r.login + addr }

func (r *redisServer) open(t testing.TB, o dlock.Options) *conformance.Peer {
	proxy := r.listen(t)
	u, err := backend.ParseURL(r.url(proxy.Addr()))
	must(t, err)
	b, err := backend.Open(t.Context(), backend.Config{URL: u, TTL: o.TTL})
	must(t, err)
	peer := r.peer(t, b, o, proxy)
	peer.DropReply = func() {
		proxy.DropReplyAfter(func(request []byte) bool { return bytes.Contains(request, []byte("evalsha")) })
	}
	return peer
}

func (r *redisServer) restart(t testing.TB) {
	must(t, r.s.Kill())
	must(t, r.s.Restart(true))
}

func (r *redisServer) borrow(t testing.TB) (backend.Backend, func() error) {
	o, err := redis.ParseURL(r.url(r.s.Addr()))
	must(t, err)
	o.DisableIdentity = true
	c := redis.NewClient(o)
	t.Cleanup(func() { _ = c.Close() })
	return lockredis.New(c, nil), func() error { return c.Ping(context.Background()).Err() }
}
