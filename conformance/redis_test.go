package conformance_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

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
	"+publish +subscribe +unsubscribe"

func redisHarness(t testing.TB) conformance.Harness {
	return newRedisHarness(t, "redis", "")
}

// redisUserHarness runs as a user who may do no more than is documented.
func redisUserHarness(t testing.TB) conformance.Harness {
	return newRedisHarness(t, "redis-user", "dlock:secret@", append([]string{"--user"}, strings.Fields(leastPrivilege)...)...)
}

func newRedisHarness(t testing.TB, name, login string, args ...string) conformance.Harness {
	logging.Disable() // the client library tells stderr of every broken connection
	s := server.Start(t, server.Redis{AppendOnly: true, Args: args})
	r := &redisServer{
		proxied: proxied{target: s.Addr(), framing: faultnet.RESP},
		s:       s,
		login:   login,
		admin:   redis.NewClient(&redis.Options{Addr: s.Addr(), DisableIdentity: true}),
	}
	t.Cleanup(func() { _ = r.admin.Close() })
	return conformance.Harness{
		Name:     name,
		Version:  s.Version(),
		Scheme:   "redis",
		URL:      r.url(s.Addr()),
		TTL:      time.Second,
		Leased:   true,
		Open:     r.open,
		Evict:    r.evict,
		Ops:      r.ops,
		Waiting:  r.waiting,
		Residue:  r.residue,
		Foreign:  r.foreign,
		Restart:  r.restart,
		Wipe:     func(t testing.TB) { must(t, r.admin.FlushAll(context.Background()).Err()) },
		BadLogin: "redis://dlock:wrong@" + s.Addr(),
		Nowhere:  "redis://127.0.0.1:1",
		Optional: []string{"Downgrader", "Reenterer", "Renewer", "TokenRegister"},
		Borrow:   r.borrow,
	}
}

// A redisServer is a server and a connection to look at it.
type redisServer struct {
	proxied
	s     *server.Server
	login string
	admin *redis.Client
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

func redisKey(name string) string { return "dlock:{" + backend.EncodeName(name) + "}" }

func (r *redisServer) evict(t testing.TB, name string) {
	key := redisKey(name)
	must(t, r.admin.Del(context.Background(), key, key+":r").Err())
}

func (r *redisServer) waiting(t testing.TB, name string) int {
	n, err := r.admin.ZCard(context.Background(), redisKey(name)+":q").Result()
	must(t, err)
	return int(n)
}

// ops counts the scripts, which are all that clients send for a lock. The one
// subscription of a client comes with its first.
func (r *redisServer) ops() int64 {
	stats := r.admin.Info(context.Background(), "commandstats").Val()
	var sum int64
	for line := range strings.Lines(stats) {
		name, rest, _ := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		switch name {
		case "eval", "evalsha":
			calls, _, _ := strings.Cut(rest, ",")
			n, _ := strconv.ParseInt(calls, 10, 64)
			sum += n
		}
	}
	return sum
}

// residue lists holds, queues and channels. A hash without a holder keeps the
// token of its lock, or the time from which the server votes.
func (r *redisServer) residue(t testing.TB) []string {
	ctx := context.Background()
	left, err := r.admin.PubSubChannels(ctx, "dlock:*").Result()
	must(t, err)
	keys, err := r.admin.Keys(ctx, "dlock:*").Result()
	must(t, err)
	for _, key := range keys {
		if r.admin.Type(ctx, key).Val() == "hash" && !r.admin.HExists(ctx, key, "o").Val() {
			continue
		}
		left = append(left, key)
	}
	return left
}

func (r *redisServer) foreign(t testing.TB, name string) func() error {
	ctx, key := context.Background(), redisKey(name)
	must(t, r.admin.Set(ctx, key, "theirs", 0).Err())
	return func() error {
		defer r.admin.Del(ctx, key)
		if got := r.admin.Get(ctx, key).Val(); got != "theirs" {
			return fmt.Errorf("the key holds %q", got)
		}
		if n := r.admin.Exists(ctx, key+":r", key+":q", key+":a", key+":x").Val(); n != 0 {
			return errors.New("there are keys beside it")
		}
		return nil
	}
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
