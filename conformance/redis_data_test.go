package conformance_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/server"
)

// A redisData is what can be seen of locks from outside, on one server or on
// several that share the keys.
type redisData struct {
	admin   redis.UniversalClient // goes where a key is
	masters []*redis.Client
}

// lookAt connects to servers, each of which has all keys that it has to itself.
func lookAt(t testing.TB, servers ...*server.Server) *redisData {
	d := new(redisData)
	for _, s := range servers {
		c := redis.NewClient(&redis.Options{Addr: s.Addr(), DisableIdentity: true})
		t.Cleanup(func() { _ = c.Close() })
		d.masters = append(d.masters, c)
	}
	d.admin = d.masters[0]
	return d
}

func redisKey(name string) string { return "dlock:{" + backend.EncodeName(name) + "}" }

func (d *redisData) evict(t testing.TB, name string) {
	key := redisKey(name)
	must(t, d.admin.Del(context.Background(), key, key+":r").Err())
}

func (d *redisData) waiting(t testing.TB, name string) int {
	n, err := d.admin.ZCard(context.Background(), redisKey(name)+":q").Result()
	must(t, err)
	return int(n)
}

// ops counts the scripts, which are all that clients send for a lock. The one
// subscription of a client comes with its first.
func (d *redisData) ops() (sum int64) {
	for _, c := range d.masters {
		sum += scriptsOn(c)
	}
	return sum
}

func scriptsOn(c *redis.Client) (sum int64) {
	for line := range strings.Lines(c.Info(context.Background(), "commandstats").Val()) {
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

// heard writes down the scripts that clients send.
func (d *redisData) heard(t testing.TB) (stop func() []string) {
	var conns []net.Conn
	var mu sync.Mutex
	var all []string
	var done sync.WaitGroup
	for _, c := range d.masters {
		conn, err := net.Dial("tcp", c.Options().Addr)
		must(t, err)
		conns = append(conns, conn)
		_, err = conn.Write([]byte("MONITOR\r\n"))
		must(t, err)
		done.Go(func() {
			for lines := bufio.NewScanner(conn); lines.Scan(); {
				if line := lines.Text(); strings.Contains(line, `"eval`) {
					mu.Lock()
					all = append(all, line)
					mu.Unlock()
				}
			}
		})
	}
	return func() []string {
		for _, conn := range conns {
			_ = conn.Close()
		}
		done.Wait()
		return all
	}
}

// state is how often the servers have written anything.
func (d *redisData) state(t testing.TB) string {
	var all []string
	for _, c := range d.masters {
		info, err := c.Info(context.Background(), "persistence").Result()
		must(t, err)
		_, rest, _ := strings.Cut(info, "rdb_changes_since_last_save:")
		writes, _, _ := strings.Cut(rest, "\r\n")
		all = append(all, writes)
	}
	return strings.Join(all, " ")
}

// residue lists holds, queues and channels. A hash without a holder keeps the
// token of its lock, or the time from which the server votes.
func (d *redisData) residue(t testing.TB) (left []string) {
	for _, c := range d.masters {
		left = append(left, residueOn(t, c)...)
	}
	return left
}

func residueOn(t testing.TB, c *redis.Client) []string {
	ctx := context.Background()
	left, err := c.PubSubChannels(ctx, "dlock:*").Result()
	must(t, err)
	if sharded, err := c.PubSubShardChannels(ctx, "dlock:*").Result(); !strings.Contains(fmt.Sprint(err), "Unknown subcommand") { // Redis 6.2
		must(t, err)
		left = append(left, sharded...)
	}
	keys, err := c.Keys(ctx, "dlock:*").Result()
	must(t, err)
	pipe := c.Pipeline() // there may be thousands
	types, held := make([]*redis.StatusCmd, len(keys)), make([]*redis.BoolCmd, len(keys))
	for i, key := range keys {
		types[i], held[i] = pipe.Type(ctx, key), pipe.HExists(ctx, key, "o")
	}
	_, _ = pipe.Exec(ctx) // a key of another type has no fields
	for i, key := range keys {
		if types[i].Val() != "hash" || held[i].Val() {
			left = append(left, key)
		}
	}
	return left
}

func (d *redisData) wipe(t testing.TB) {
	for _, c := range d.masters {
		must(t, c.FlushAll(context.Background()).Err())
	}
}

func (d *redisData) foreign(t testing.TB, name string) func() error {
	ctx, key := context.Background(), redisKey(name)
	must(t, d.admin.Set(ctx, key, "theirs", 0).Err())
	return func() error {
		defer d.admin.Del(ctx, key)
		if got := d.admin.Get(ctx, key).Val(); got != "theirs" {
			return fmt.Errorf("the key holds %q", got)
		}
		if n := d.admin.Exists(ctx, key+":r", key+":q", key+":a", key+":x").Val(); n != 0 {
			return errors.New("there are keys beside it")
		}
		return nil
	}
}
