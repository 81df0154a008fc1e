package redis

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
)

// TestIdleTimeOfURLs has connections be replaced before anything on the way forgets them, unless
// the URL says something else.
func TestIdleTimeOfURLs(t *testing.T) {
	for param, want := range map[string]time.Duration{
		"": maxIdleTime, "?conn_max_idle_time=20s": 20 * time.Second, "?idle_timeout=20s": 20 * time.Second, "?conn_max_idle_time=0": -1,
	} {
		for _, url := range []string{"redis://h", "rediss://h", "unix:///s", "redis+sentinel://h/m", "redis+cluster://h"} {
			if param == "?idle_timeout=20s" && strings.Contains(url, "+") {
				continue // a name that is known for one server alone
			}
			client := clientOfURL(t, url+param)
			var got time.Duration
			switch c := client.(type) {
			case *redis.Client:
				got = c.Options().ConnMaxIdleTime
			case *redis.ClusterClient:
				got = c.Options().ConnMaxIdleTime
			}
			if got != want {
				t.Errorf("%s: %s, want %s", url+param, got, want)
			}
		}
	}
}

// TestLockPastSilentConnections has something on the way forget all connections of a client. It tells
// nobody, but they were idle for longer than they may be, and a Lock meets none of them.
func TestLockPastSilentConnections(t *testing.T) {
	t.Parallel()
	const connections, idle = 5, time.Millisecond
	ctx := within(t)
	c := clientOfURL(t, "redis://"+shared.Addr()+"?conn_max_idle_time="+idle.String())
	way := &forgetfulWay{}
	c.AddHook(way)
	b := newBackend(t, c, &Options{PollOnly: true})
	r := requestOf(t, "", backend.Exclusive)
	must[any](t)(nil, b.Release(ctx, must[*backend.Hold](t)(b.Acquire(ctx, r))))
	useIdle(t, c.(*redis.Client), connections)
	way.forget()
	since := time.Now()
	eventually(t, "all are idle for too long", func() bool { return time.Since(since) > idle })
	r.ID.Seq++
	must[any](t)(nil, b.Release(ctx, must[*backend.Hold](t)(b.Acquire(ctx, r))))
	if n := way.lost.Load(); n > 0 {
		t.Errorf("%d requests were sent on connections that are forgotten", n)
	}
}

// useIdle has a client have some connections that nobody uses.
func useIdle(t *testing.T, c *redis.Client, connections int) {
	t.Helper()
	var all []*redis.Conn
	for range connections {
		conn := c.Conn()
		must[any](t)(nil, conn.Ping(within(t)).Err())
		all = append(all, conn)
	}
	for _, conn := range all {
		must[any](t)(nil, conn.Close())
	}
}

// clientOfURL is a client as Open makes it.
func clientOfURL(t *testing.T, url string) redis.UniversalClient {
	t.Helper()
	c, _, err := clientOf(backend.Config{URL: must[*backend.URL](t)(backend.ParseURL(url))})
	must[any](t)(nil, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// A forgetfulWay drops what is sent on connections that were made before it has forgotten them, or
// ends these then.
type forgetfulWay struct {
	generation, lost atomic.Int64
	tells            bool
}

func (f *forgetfulWay) forget() { f.generation.Add(1) }

func (f *forgetfulWay) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		return dropping{conn, f, f.generation.Load()}, err
	}
}

func (*forgetfulWay) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (*forgetfulWay) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

type dropping struct {
	net.Conn
	way        *forgetfulWay
	generation int64
}

func (c dropping) Write(b []byte) (int, error) {
	if c.generation < c.way.generation.Load() {
		c.way.lost.Add(1)
		if c.way.tells {
			_ = c.Close()
			return c.Conn.Write(b)
		}
		return len(b), nil
	}
	return c.Conn.Write(b)
}
