package redis

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/faultnet"
	"github.com/dlock-go/dlock/internal/server"
)

// TestPingOnAClientOfOnesOwn pings a server that does not answer, or cuts the connection, on a
// client that does not go by contexts and repeats commands, as the client library has it. A
// connection that is cut is taken for one that broke before, and another is tried once.
func TestPingOnAClientOfOnesOwn(t *testing.T) {
	t.Parallel()
	for cut, want := range map[bool]int64{false: 1, true: 2} {
		t.Run(fmt.Sprint("cut ", cut), func(t *testing.T) {
			t.Parallel()
			proxy := proxied(t)
			c := redis.NewClient(&redis.Options{Addr: proxy.Addr(), DisableIdentity: true, ReadTimeout: 2 * limit, MaxRetries: 3})
			t.Cleanup(func() { _ = c.Close() })
			b := New(c, nil)
			must[string](t)(b.Ping(within(t)))
			var pings atomic.Int64
			ctx, cancel := context.WithCancel(within(t))
			defer cancel()
			proxy.OnRequest(func(_ int, request []byte) {
				if !bytes.Contains(request, []byte("ping")) {
					return
				}
				pings.Add(1)
				if cut {
					proxy.Reset()
				} else {
					cancel()
				}
			})
			if !cut {
				proxy.Blackhole(faultnet.ToClient)
			}
			done := make(chan error, 1)
			go func() { _, err := b.Ping(ctx); done <- err }()
			select {
			case err := <-done:
				if err == nil || pings.Load() != want {
					t.Errorf("%d pings were sent, error %v", pings.Load(), err)
				}
			case <-time.After(limit / 4):
				t.Error("the ping goes on, though its context has ended")
			}
			proxy.Restore(faultnet.BothWays)
			must[any](t)(nil, b.Close(within(t)))
		})
	}
}

// TestPingWhereScriptsWait pings a server that keeps scripts waiting, for longer than its client waits
// for a reply and for less: it grants no lock.
func TestPingWhereScriptsWait(t *testing.T) {
	t.Parallel()
	s := server.StartAll(t, server.Redis{})[0]
	must[any](t)(plainClient(t, s).Do(within(t), "client", "pause", limit.Milliseconds(), "write").Result())
	for _, wait := range []time.Duration{limit / 100, 2 * limit} {
		c := redis.NewClient(&redis.Options{Addr: s.Addr(), DisableIdentity: true, ReadTimeout: wait})
		t.Cleanup(func() { _ = c.Close() })
		ctx, cancel := context.WithTimeout(within(t), limit/50)
		defer cancel()
		b := New(c, nil)
		if _, err := b.Ping(ctx); !errors.Is(err, backend.ErrUnavailable) {
			t.Errorf("a client that waits for %v: %v", wait, err)
		}
	}
}

// TestNamesOnAClientOfOnesOwn asks a server that does not answer for names of locks, on such a client.
func TestNamesOnAClientOfOnesOwn(t *testing.T) {
	t.Parallel()
	proxy := proxied(t)
	c := redis.NewClient(&redis.Options{Addr: proxy.Addr(), DisableIdentity: true, ReadTimeout: 2 * limit})
	t.Cleanup(func() { _ = c.Close() })
	b := New(c, nil)
	must[string](t)(b.Ping(within(t)))
	proxy.Blackhole(faultnet.ToClient)
	ctx, cancel := context.WithTimeout(within(t), limit/100)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		for _, err := range b.Names(ctx, "") {
			done <- err
		}
	}()
	select {
	case err := <-done:
		if !errors.Is(err, backend.ErrUnavailable) {
			t.Error(err)
		}
	case <-time.After(limit / 4):
		t.Error("Names goes on, though its context has ended")
	}
	proxy.Restore(faultnet.BothWays)
	must[any](t)(nil, b.Close(within(t)))
}

// TestPingIsNoUse pings a server that nobody has asked for a lock. It has run no script then, and
// may vote at once: one that has might have granted what it has forgotten.
func TestPingIsNoUse(t *testing.T) {
	t.Parallel()
	c := plainClient(t, server.StartAll(t, server.Redis{})[0])
	must[string](t)(newBackend(t, c, nil).Ping(within(t)))
	if stats := must[string](t)(c.Info(within(t), "commandstats").Result()); strings.Contains(stats, "cmdstat_eval") {
		t.Error(stats)
	}
}
