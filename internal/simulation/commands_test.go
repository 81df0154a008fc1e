package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"reflect"
	"strings"
	"sync"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	real "github.com/dlock-go/dlock/internal/server"
)

// TestCommands has a Redis and a simulated one execute the same random commands in
// scripts: each reply must be the same.
func TestCommands(t *testing.T) {
	a := goredis.NewClient(&goredis.Options{Addr: real.Start(t, real.Redis{}).Addr(), DisableIdentity: true})
	defer a.Close()
	s := newServer(0, 0, new(sync.Map), func(*server, string, truth) {}, func(string) {})
	b := goredis.NewClient(&goredis.Options{
		DisableIdentity: true,
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			near, far := net.Pipe()
			s.serve(far)
			return near, nil
		},
	})
	defer s.close()
	defer b.Close()
	// What it returns also says what Lua was given: numbers, texts, false.
	const script = `
		local r = redis.pcall(unpack(ARGV))
		if type(r) ~= 'table' then return {type(r), tostring(r), r} end
		if r.err then return {'error', string.match(r.err, '^%a+')} end
		local all = {'table'}
		for i, v in ipairs(r) do all[i + 1] = type(v) .. tostring(v) end
		return all`
	d := &draw{rand.New(rand.NewPCG(1, 2))}
	for range 5000 {
		args := d.command()
		want, err := a.Eval(t.Context(), script, nil, args...).Result()
		if err != nil {
			t.Fatal(err)
		}
		got, err := b.Eval(t.Context(), script, nil, args...).Result()
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) && !unordered(args) {
			t.Fatalf("%v: got %v, want %v", args, got, want)
		}
	}
}

// unordered reports whether a reply is in no order.
func unordered(args []any) bool { return args[0] == "HGETALL" }

// command draws a command about a few keys. A key may be of the wrong kind.
func (d *draw) command() []any {
	key := pick(d, "h1", "h2", "z1", "z2")
	if d.often(3) {
		key = pick(d, "h1", "z1")
	}
	part := func() any { return pick(d, "a", "b", "c", "d", "e") }
	score := func() any { return pick[any](d, 0, 1, 2, 3, -1, 1.5, "1e3", 1700000000000, 1700000000000123) }
	border := func() any {
		return pick(d, "-inf", "+inf", fmt.Sprint(d.IntN(4)), fmt.Sprintf("(%d", d.IntN(4)), "x")
	}
	index := func() any { return d.IntN(7) - 3 }
	list := [][]any{
		{"HMGET", key, part(), part()},
		{"HSET", key, part(), score(), part(), part()},
		{"HDEL", key, part(), part()},
		{"ZADD", key, score(), part(), score(), part()},
		{"ZADD", key, "NX", score(), part()},
		{"ZREM", key, part()},
		{"ZCARD", key}, {"ZSCORE", key, part()}, {"ZRANK", key, part()},
		{"ZRANGE", key, index(), index()}, {"ZRANGE", key, index(), index(), "WITHSCORES"},
		{"ZREVRANGE", key, index(), index()}, {"ZREVRANGE", key, 0, 0, "WITHSCORES"},
		{"ZRANGEBYSCORE", key, border(), border()},
		{"ZRANGEBYSCORE", key, border(), border(), "WITHSCORES", "LIMIT", d.IntN(3), d.IntN(4) - 1},
		{"ZREMRANGEBYSCORE", key, border(), border()},
		{"EXISTS", key, "none"}, {"TYPE", key}, {"DEL", key},
		{"PEXPIRE", key, pick[any](d, 100000, 0, -1, "x")}, {"PUBSUB", "numsub", "topic"},
		{"publish", "topic", "text"}, {"HGETALL", key},
	}
	args := pick(d, list...)
	if d.often(2) {
		args = args[:min(len(args), 2)]
	}
	if strings.HasPrefix(key, "z") == strings.HasPrefix(args[0].(string), "H") && !d.often(5) {
		return d.command()
	}
	return args
}
