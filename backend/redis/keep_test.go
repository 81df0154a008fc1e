package redis

import (
	"context"
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
)

// TestKeep has keys of free locks kept for a time of the client's own, on a server and
// on a cluster, whichever script it was that touched them last.
func TestKeep(t *testing.T) {
	const kept, ttl = 2 * time.Second, 3 * time.Second
	urls := map[string]func(t *testing.T) (string, redisKeys){
		"server": func(t *testing.T) (string, redisKeys) {
			return "redis://" + shared.Addr(), plainClient(t, shared)
		},
		"cluster": func(t *testing.T) (string, redisKeys) {
			c, admin := sharedCluster.use(t)
			return clusterURL(c), admin
		},
	}
	for name, at := range urls {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := within(t)
			url, keys := at(t)
			c := openURL(t, fmt.Sprintf("%s?dlock.keep=%v", url, kept), &dlock.Options{TTL: ttl})
			m := c.RWMutex(t.Name())
			for round := range 3 { // also with the short script
				l := must[*dlock.Lease](t)(m.Lock(ctx))
				if round == 2 {
					time.Sleep(ttl/3 + 200*time.Millisecond) // it is renewed
				}
				must[any](t)(nil, l.Unlock(ctx))
				l = must[*dlock.Lease](t)(m.RLock(ctx))
				must[any](t)(nil, l.Unlock(ctx))
				left := keys.PTTL(ctx, mainKey(t.Name())).Val()
				if left <= 0 || left > ttl+kept+kept/5 {
					t.Errorf("round %d: the key stays for %v", round, left)
				}
			}
		})
	}
}

// redisKeys looks at keys of a server or a cluster.
type redisKeys interface {
	PTTL(ctx context.Context, key string) *redis.DurationCmd
}

func TestKeepOfTheURL(t *testing.T) {
	for _, bad := range []string{"0s", "-1s", "10ms"} {
		_, err := dlock.Open(t.Context(), "redis://"+shared.Addr()+"?dlock.keep="+bad, nil)
		is(t, err, dlock.ErrInvalidConfig)
	}
}

// TestKeyOfALockThatWasLost has the key of a lock end before its queue does, which takes a Keep of
// less than the queue is kept for. Whoever leaves that brings the key back, and it ends again.
func TestKeyOfALockThatWasLost(t *testing.T) {
	ctx, c := within(t), plainClient(t, shared)
	b, k := newBackend(t, plainClient(t, shared), nil), lockKey(t.Name())
	const gone, leaves = "w60000:gone:1.AAAAAAAAAAA", "w60000:leaves:1.AAAAAAAAAAA"
	for _, id := range []string{gone, leaves} {
		must[int64](t)(c.ZAdd(ctx, string(k)+":q", redis.Z{Score: 1, Member: id}).Result())
		must[int64](t)(c.ZAdd(ctx, string(k)+":a", redis.Z{Score: float64(time.Now().Add(limit).UnixMilli()), Member: id}).Result())
	}
	must[answer](t)(b.run(ctx, limit, releaseScript, releaseScript.callWith(k, 5, leaves, 0)))
	if left := c.PTTL(ctx, string(k)).Val(); left == -1 {
		t.Errorf("the key stays for ever, with %v", c.HGetAll(ctx, string(k)).Val())
	}
	if n := c.ZCard(ctx, string(k)+":q").Val(); n > 0 {
		t.Errorf("%d wait", n)
	}
}

// TestGrantWhoseTokenWasEvicted has the key with the token of a lock be evicted after a reader who
// waits was let in, and before that one asks. It has the lock, under a token as every hold.
func TestGrantWhoseTokenWasEvicted(t *testing.T) {
	t.Parallel()
	ctx, c, k := within(t), plainClient(t, shared), lockKey(t.Name()+rand.Text())
	run := func(s *script, args ...any) any {
		t.Helper()
		return must[any](t)(c.Do(ctx, s.whole("eval", s.callWith(k, 5, args...))...).Result())
	}
	const writer, reader = "w60000p:a:1", "r60000p:b:1"
	run(acquireScript, writer, 60000, "w")
	run(acquireScript, reader, 60000, "w")
	run(releaseScript, writer, 0, "")
	must[int64](t)(c.Del(ctx, string(k)).Result())
	var a answer
	a.read(run(acquireScript, reader, 60000, "p"))
	if a.status() != "GRANTED" || a.int(2) <= 0 {
		t.Errorf("the reader is told %v", a.values)
	}
	var again answer
	again.read(run(acquireScript, reader, 60000, "p"))
	if again.int(2) != a.int(2) {
		t.Errorf("the reader is told token %d, then %d", a.int(2), again.int(2))
	}
	if left := c.PTTL(ctx, string(k)).Val(); left <= 0 {
		t.Errorf("the key of the lock ends in %v", left)
	}
}

// TestKeysOfAnEvictedLockEnd has keys of a lock be evicted while others wait: what is made anew ends
// by itself, also if nobody asks any more.
func TestKeysOfAnEvictedLockEnd(t *testing.T) {
	t.Parallel()
	const holder, first, second = "w60000:a:1", "w60000:b:1", "w60000:c:1" // nobody hears of a grant
	for name, evict := range map[string]func(ctx context.Context, c *redis.Client, k key, run func(s *script, args ...any)){
		"who lives": func(ctx context.Context, c *redis.Client, k key, run func(*script, ...any)) {
			c.Del(ctx, string(k)+":a")
			run(acquireScript, first, 60000, "p")
		},
		"who lives, and another comes": func(ctx context.Context, c *redis.Client, k key, run func(*script, ...any)) {
			c.Del(ctx, string(k)+":a")
			run(acquireScript, "w60000:d:1", 60000, "w")
		},
		"all, and who lives": func(ctx context.Context, c *redis.Client, k key, run func(*script, ...any)) {
			c.Del(ctx, string(k), string(k)+":a")
			run(releaseScript, first, 0, "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, c, k := within(t), plainClient(t, shared), lockKey(t.Name()+rand.Text())
			run := func(s *script, args ...any) {
				t.Helper()
				must[any](t)(c.Do(ctx, s.whole("eval", s.callWith(k, 5, args...))...).Result())
			}
			for _, id := range []string{holder, first, second} {
				run(acquireScript, id, 60000, "w")
			}
			evict(ctx, c, k, run)
			for _, suffix := range suffixes {
				if c.PTTL(ctx, string(k)+suffix).Val() == -1 {
					t.Errorf("%s%s never ends", k, suffix)
				}
			}
		})
	}
}
