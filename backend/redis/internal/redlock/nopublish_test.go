package redlock

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
)

// A user has all the documented rights but those that are needed to be told, or all rights but to
// any channel, as Redis 7 has it unless the user gets some. The front keeps scripts waiting, and
// answers all else: who waits there goes on at another.
func TestFrontKeepsScriptsOfAPollerWaiting(t *testing.T) {
	const documented = "-@all +hello +auth +ping +select +client|setname +info +eval +evalsha " +
		"+time +exists +hmget +hset +hdel +pexpire +zadd +zrem +zcard +zscore +zrank +zrange +zrevrange +zrangebyscore +zremrangebyscore +config|get"
	for name, rights := range map[string]string{"no messages": documented, "no channels": "+@all"} {
		t.Run(name, func(t *testing.T) { t.Parallel(); frontKeepsScriptsWaiting(t, rights) })
	}
}

func frontKeepsScriptsWaiting(t *testing.T, rights string) {
	masters := startMasters(t, 3)
	vouchFor(t, masters...)
	var admins []*redis.Client
	for _, m := range masters {
		args := []any{"acl", "setuser"}
		for _, right := range strings.Fields("dlock on >password resetkeys ~dlock:* resetchannels " + rights) {
			args = append(args, right)
		}
		admins = append(admins, admin(t, m))
		ok(t, admins[len(admins)-1].Do(t.Context(), args...).Err())
	}
	url := "redlock://dlock:password@" + addresses(masters)
	a, b := openURL(t, url, nil), openURL(t, url, nil)
	for range 10 {
		cycle(t, a, "x")
		cycle(t, b, "x")
	}
	l, err := a.Mutex("x").Lock(t.Context())
	ok(t, err)
	done := make(chan error, 1)
	go func() {
		done <- dlock.Do(context.Background(), b.Mutex("x"), func(context.Context, *dlock.Lease) error { return nil })
	}()
	var front *redis.Client // where it waits: on a busy machine that may be another node
	eventually(t, "the other waits", func() bool {
		for _, front = range admins {
			if front.ZCard(t.Context(), "dlock:{x}:q").Val() > 0 {
				return true
			}
		}
		return false
	})
	ok(t, front.ConfigResetStat(t.Context()).Err())
	eventually(t, "it asks again and again", func() bool {
		_, stats, _ := strings.Cut(front.Info(t.Context(), "commandstats").Val(), "cmdstat_evalsha:calls=")
		calls, _, _ := strings.Cut(stats, ",")
		n, _ := strconv.Atoi(calls)
		return n > 10
	})
	const pause = 30 * time.Second
	ok(t, front.Do(t.Context(), "client", "pause", pause.Milliseconds(), "write").Err())
	ok(t, l.Unlock(context.Background()))
	select {
	case err := <-done:
		ok(t, err)
	case <-time.After(pause / 2):
		t.Error("who waits has not got the lock")
	}
	ok(t, front.Do(t.Context(), "client", "unpause").Err())
}
