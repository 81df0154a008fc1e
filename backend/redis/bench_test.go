package redis

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/server"
)

// A cycle takes and releases the lock of a name once.
type cycle func(ctx context.Context, name string) error

// floorCycle is what the simplest lock costs on the bare client: SET NX and a
// compare-and-delete.
func floorCycle(b *testing.B) cycle { return floorCycleOn(plainClient(b, shared)) }

func floorCycleOn(c redis.UniversalClient) cycle {
	del := redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)
	return func(ctx context.Context, name string) error {
		if err := c.SetArgs(ctx, name, "owner", redis.SetArgs{Mode: "NX", TTL: 30 * time.Second}).Err(); err != nil {
			return err
		}
		return del.Run(ctx, c, []string{name}, "owner").Err()
	}
}

// scriptCycle is what any lock costs whose operations are scripts with the keys
// of ours, if they do nothing.
func scriptCycle(b *testing.B) cycle {
	c := plainClient(b, shared)
	nothing := must[string](b)(c.ScriptLoad(b.Context(), "return 1").Result())
	return func(ctx context.Context, name string) error {
		k, keys := mainKey(name), make([]string, len(suffixes))
		for i, suffix := range suffixes {
			keys[i] = k + suffix
		}
		for range 2 {
			if err := c.EvalSha(ctx, nothing, keys, "owner").Err(); err != nil {
				return err
			}
		}
		return nil
	}
}

func lockCycle(b *testing.B) cycle { return lockCycleOn(openClient(b, shared, nil)) }

func lockCycleOn(c *dlock.Client) cycle {
	return func(ctx context.Context, name string) error {
		l, err := c.Mutex(name).Lock(ctx)
		if err != nil {
			return err
		}
		return l.Unlock(ctx)
	}
}

// BenchmarkFree takes locks that nobody else wants, beside the floor.
func BenchmarkFree(b *testing.B) {
	for _, goroutines := range []int{1, 64} {
		for _, kind := range []struct {
			name string
			make func(*testing.B) cycle
		}{{"floor", floorCycle}, {"scripts", scriptCycle}, {"dlock", lockCycle}} {
			b.Run(fmt.Sprintf("%s/goroutines=%d", kind.name, goroutines), func(b *testing.B) {
				run := kind.make(b)
				b.ReportAllocs()
				costs := processors(b)
				spread(b, goroutines, func(ctx context.Context, i int) error {
					return run(ctx, fmt.Sprintf("free/%s/%d", kind.name, i))
				})
				costs()
			})
		}
	}
}

// processors begins to measure. What it returns reports the CPU time of the clients
// and of the server.
func processors(b *testing.B) (end func()) {
	client, server := cpuTime(), serverTime(b)
	b.ResetTimer()
	return func() {
		b.StopTimer()
		perOp := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / float64(b.N) }
		b.ReportMetric(perOp(cpuTime()-client), "client-ns/op")
		b.ReportMetric(perOp(serverTime(b)-server), "server-ns/op")
	}
}

// spread runs b.N calls of f on n goroutines.
func spread(b *testing.B, n int, f func(ctx context.Context, i int) error) (counts []int64) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var left atomic.Int64
	left.Store(int64(b.N))
	counts = make([]int64, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				if err := f(ctx, i); err != nil {
					b.Error(err)
					return
				}
				counts[i]++
			}
		})
	}
	all.Wait()
	return counts
}

// A baton is what one client does in a turn: it waits for the lock and passes it on.
type baton func(ctx context.Context) error

// BenchmarkHandOver passes one lock round between 16 clients, beside a token
// in a list, and beside scripts that do less and less of what a lock has to.
func BenchmarkHandOver(b *testing.B) {
	const clients = 16
	for _, kind := range []struct {
		name string
		make func(b *testing.B, key, id string) baton
	}{{"floor", listBaton}, {"told", toldBaton}, {"leased", leasedBaton}, {"dlock", lockBaton}} {
		b.Run(kind.name, func(b *testing.B) {
			key := fmt.Sprintf("{hand-over/%s/%d}", kind.name, b.N)
			var all []baton
			for i := range clients {
				all = append(all, kind.make(b, key, fmt.Sprint(key, ":", i)))
			}
			before := scriptCalls(b)
			costs := processors(b)
			fairness(b, spread(b, clients, func(ctx context.Context, i int) error { return all[i](ctx) }))
			costs()
			b.ReportMetric(float64(scriptCalls(b)-before)/float64(b.N), "scripts/op")
		})
	}
}

func lockBaton(b *testing.B, key, _ string) baton {
	run := lockCycle(b)
	return func(ctx context.Context) error { return run(ctx, key) }
}

// listBaton waits for a token in a list, and puts it back.
func listBaton(b *testing.B, key, _ string) baton {
	c := plainClient(b, shared)
	if must[bool](b)(c.SetNX(b.Context(), key+":made", 1, time.Hour).Result()) {
		must[int64](b)(c.RPush(b.Context(), key, "token").Result())
	}
	return func(ctx context.Context) error {
		if err := c.BLPop(ctx, limit, key).Err(); err != nil {
			return err
		}
		return c.RPush(ctx, key, "token").Err()
	}
}

// toldBaton queues, and is told by a message that it is its turn: what a lock costs
// at least if a client waits for all its locks on one connection. There is no lease,
// no token and nobody who dies.
func toldBaton(b *testing.B, key, id string) baton {
	return scriptBaton(b, key, id,
		`if redis.call('SETNX', KEYS[1], 1) == 1 then return 1 end
redis.call('RPUSH', KEYS[2], ARGV[1])
return 0`,
		`local next = redis.call('LPOP', KEYS[2])
if next then redis.call('PUBLISH', next, 'yours') else redis.call('DEL', KEYS[1]) end
return 0`)
}

// leasedBaton has besides what it takes to know whose the lock is and until when, and
// to fence off who had it before.
func leasedBaton(b *testing.B, key, id string) baton {
	return scriptBaton(b, key, id,
		`local time = redis.call('TIME')
local us = time[1] * 1000000 + time[2]
local s = redis.call('HMGET', KEYS[1], 'o', 'e', 't')
if s[1] and tonumber(s[2]) > us then
  redis.call('ZADD', KEYS[2], string.format('%.0f', us), ARGV[1])
  return 0
end
redis.call('HSET', KEYS[1], 'o', ARGV[1], 'e', string.format('%.0f', us + 5000000), 't', string.format('%.0f', us))
return 1`,
		`local time = redis.call('TIME')
local us = time[1] * 1000000 + time[2]
local s = redis.call('HMGET', KEYS[1], 'o', 'e', 't')
if s[1] ~= ARGV[1] then return redis.error_reply('LOST') end
local next = redis.call('ZPOPMIN', KEYS[2])[1]
if not next then return redis.call('HDEL', KEYS[1], 'o') end
local token = string.format('%.0f', math.max(us, s[3] + 1))
redis.call('PUBLISH', next, token)
redis.call('HSET', KEYS[1], 'o', next, 'e', string.format('%.0f', us + 5000000), 't', token)
return 0`)
}

// scriptBaton is a client that takes a lock by a script, or is told later that it has
// it, and passes it on by another.
func scriptBaton(b *testing.B, key, id, take, pass string) baton {
	c := plainClient(b, shared)
	keys := []string{key, key + ":q"}
	messages := c.Subscribe(b.Context(), id)
	b.Cleanup(func() { _ = messages.Close() })
	must[any](b)(messages.Receive(b.Context()))
	takes := must[string](b)(c.ScriptLoad(b.Context(), take).Result())
	passes := must[string](b)(c.ScriptLoad(b.Context(), pass).Result())
	return func(ctx context.Context) error {
		taken, err := c.EvalSha(ctx, takes, keys, id).Bool()
		if err == nil && !taken {
			_, err = messages.ReceiveMessage(ctx)
		}
		if err != nil {
			return err
		}
		return c.EvalSha(ctx, passes, keys, id).Err()
	}
}

// fairness reports how often the busiest client was served for each time the
// least busy one was.
func fairness(b *testing.B, counts []int64) {
	least := slices.Min(counts)
	if least > 0 {
		b.ReportMetric(float64(slices.Max(counts))/float64(least), "most/fewest")
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "hand-overs/s")
}

// BenchmarkHeld keeps 10,000 locks with leases of 3 s. One op is one second, after
// the first lease, in which each lock has been looked after once.
func BenchmarkHeld(b *testing.B) {
	const locks, ttl = 10_000, 3 * time.Second
	c := openClient(b, shared, &dlock.Options{TTL: ttl})
	memory, goroutines := heap(), runtime.NumGoroutine()
	leases := make([]*dlock.Lease, locks)
	var next atomic.Int64
	spreadN(b, 64, locks, func(ctx context.Context) error {
		i := next.Add(1) - 1
		var err error
		leases[i], err = c.Mutex(fmt.Sprintf("held/%d", i)).Lock(ctx)
		return err
	})
	time.Sleep(ttl)
	perLock, grown := float64(heap()-memory)/locks, float64(runtime.NumGoroutine()-goroutines)
	commands, cpu := scriptCalls(b), cpuTime()
	b.ResetTimer()
	for range b.N {
		time.Sleep(time.Second)
	}
	b.StopTimer()
	seconds := b.Elapsed().Seconds()
	b.ReportMetric(float64(scriptCalls(b)-commands)/seconds, "commands/s")
	b.ReportMetric(perLock, "B/lock")
	b.ReportMetric(grown, "goroutines")
	b.ReportMetric(100*(cpuTime()-cpu).Seconds()/seconds, "%core")
	for _, l := range leases {
		if l.Err() != nil {
			b.Fatal(l.Err())
		}
	}
	runtime.KeepAlive(leases)
}

// spreadN is spread for a number of its own.
func spreadN(b *testing.B, n, calls int, f func(ctx context.Context) error) {
	var left atomic.Int64
	left.Store(int64(calls))
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				if err := f(b.Context()); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(min(m.HeapAlloc, math.MaxInt64))
}

// serverTime is the CPU time that the shared server has used.
func serverTime(b *testing.B) time.Duration { return timeOf(b, shared) }

func timeOf(b *testing.B, s *server.Server) time.Duration {
	info := must[string](b)(plainClient(b, s).Info(b.Context(), "cpu").Result())
	var sum float64
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_sys" || name == "used_cpu_user" {
			seconds, _ := strconv.ParseFloat(value, 64)
			sum += seconds
		}
	}
	return time.Duration(sum * float64(time.Second))
}

// cpuTime is what this process has used.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkInspect asks who waits where 10,000 do, beside a client that takes free locks.
func BenchmarkInspect(b *testing.B) {
	const waiters = 10_000
	c, name := plainClient(b, shared), b.Name()
	var all []redis.Z
	for n := range waiters {
		score := float64(time.Now().Add(time.Hour).UnixMilli() + int64(n))
		all = append(all, redis.Z{Score: score, Member: fmt.Sprintf("w60000:client:%d.AAAAAAAAAAA", n+1)})
	}
	for _, suffix := range []string{":q", ":a"} {
		must[int64](b)(c.ZAdd(b.Context(), mainKey(name)+suffix, all...).Result())
		b.Cleanup(func() { c.Del(context.Background(), mainKey(name)+suffix) })
	}
	l := New(c, nil)
	costs := processors(b)
	b.ReportAllocs()
	for b.Loop() {
		if s := must[backend.Snapshot](b)(l.Inspect(b.Context(), name)); len(s.Waiters) != waiters {
			b.Fatalf("%d waiters", len(s.Waiters))
		}
	}
	costs()
}

// BenchmarkNames lists 100,000 locks that are held.
func BenchmarkNames(b *testing.B) {
	const locks = 100_000
	s := server.Start(b, server.Redis{})
	c := plainClient(b, s)
	pipe := c.Pipeline()
	for n := range locks {
		pipe.HSet(b.Context(), mainKey(fmt.Sprint("name/", n)), "o", "w60000:client:1.AAAAAAAAAAA", "e", int64(1)<<43, "t", 1)
		if n%1000 == 999 {
			must[[]redis.Cmder](b)(pipe.Exec(b.Context()))
		}
	}
	l := New(c, nil)
	before := timeOf(b, s)
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		for _, err := range l.Names(b.Context(), "name/") {
			must[any](b)(nil, err)
			n++
		}
		if n != locks {
			b.Fatalf("%d names", n)
		}
	}
	b.ReportMetric(float64((timeOf(b, s)-before).Milliseconds())/float64(b.N), "server-ms/op")
}
