package redis

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/server"

	"github.com/redis/go-redis/v9"
)

// scriptCalls is how many scripts clients have sent to the shared server.
func scriptCalls(t testing.TB) int64 { return scriptsOf(t, shared) }

func scriptsOf(t testing.TB, s *server.Server) int64 {
	counts := commandsOf(t, s)
	return counts["eval"] + counts["evalsha"]
}

// commandsOf counts by name what a server has executed, also inside scripts.
func commandsOf(t testing.TB, s *server.Server) map[string]int64 {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: s.Addr(), DisableIdentity: true})
	defer c.Close()
	stats := must[string](t)(c.Info(context.Background(), "commandstats").Result())
	counts := make(map[string]int64)
	for line := range strings.Lines(stats) {
		name, rest, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		if !ok {
			continue
		}
		calls, _, _ := strings.Cut(rest, ",")
		counts[name], _ = strconv.ParseInt(calls, 10, 64)
	}
	return counts
}

// sent is how many commands clients sent while f ran: the scripts, and what is
// neither part of a script nor of this test.
func sent(t *testing.T, s *server.Server, f func()) int64 {
	t.Helper()
	before := commandsOf(t, s)
	f()
	n := int64(0)
	for name, calls := range commandsOf(t, s) {
		switch name {
		case "eval", "evalsha", "get", "set", "del", "ping", "subscribe", "unsubscribe", "script|load":
			n += calls - before[name]
		}
	}
	return n
}

func TestCommandsOfAFreeLock(t *testing.T) {
	ctx := within(t)
	s := server.Start(t, server.Redis{})
	m := openClient(t, s, nil).Mutex(t.Name())
	warm(t, s, m)
	var l *dlock.Lease
	if n := sent(t, s, func() { l = must[*dlock.Lease](t)(m.Lock(ctx)) }); n != 1 {
		t.Errorf("Lock sent %d commands", n)
	}
	inner := l.Context(ctx)
	var nested *dlock.Lease
	if n := sent(t, s, func() { nested = must[*dlock.Lease](t)(m.Lock(inner)) }); n != 1 {
		t.Errorf("a nested Lock sent %d commands", n)
	}
	for what, lease := range map[string]*dlock.Lease{"a nested Unlock": nested} {
		if n := sent(t, s, func() { _ = lease.Unlock(ctx) }); n != 1 {
			t.Errorf("%s sent %d commands", what, n)
		}
	}
	if n := sent(t, s, func() { _ = l.Unlock(ctx) }); n != 1 {
		t.Errorf("Unlock sent %d commands", n)
	}
}

// warm has the client subscribe, and the server know the scripts.
func warm(t *testing.T, s *server.Server, m *dlock.Mutex) {
	t.Helper()
	ctx := within(t)
	l := must[*dlock.Lease](t)(m.Lock(ctx))
	nested := must[*dlock.Lease](t)(m.Lock(l.Context(ctx)))
	for _, l := range []*dlock.Lease{nested, l} {
		if err := l.Unlock(ctx); err != nil {
			t.Fatal(err)
		}
	}
	c := plainClient(t, s)
	eventually(t, "the client listens, and the server knows the scripts for free locks", func() bool {
		must[any](t)(nil, turns(ctx, m, 1))
		known := must[[]bool](t)(c.ScriptExists(ctx, grabScript.sha, dropScript.sha).Result())
		return known[0] && known[1]
	})
}

// subscribed waits until n clients listen.
func subscribed(t *testing.T, s *server.Server, n int) {
	t.Helper()
	c := plainClient(t, s)
	eventually(t, "the clients listen", func() bool {
		return len(c.PubSubChannels(context.Background(), channelPrefix+"*").Val()) == n
	})
}

func TestCommandsOfHandOver(t *testing.T) {
	ctx := within(t)
	s := server.Start(t, server.Redis{})
	const clients, rounds = 4, 300
	var locks []*dlock.Mutex
	for range clients {
		m := openClient(t, s, nil).Mutex(t.Name())
		must[*dlock.Lease](t)(nil, must[*dlock.Lease](t)(m.Lock(ctx)).Unlock(ctx))
		locks = append(locks, m)
	}
	subscribed(t, s, clients)
	done := make(chan error, clients)
	n := sent(t, s, func() {
		for _, m := range locks {
			go func() { done <- turns(ctx, m, rounds) }()
		}
		for range clients {
			must[any](t)(nil, <-done)
		}
	})
	if per := float64(n) / (clients * rounds); per > 2.2 {
		t.Errorf("%.2f commands a hand-over", per)
	}
}

func turns(ctx context.Context, m *dlock.Mutex, n int) error {
	for range n {
		l, err := m.Lock(ctx)
		if err != nil {
			return err
		}
		if err := l.Unlock(ctx); err != nil {
			return err
		}
	}
	return nil
}

// TestCommandsOfIdleWaiters has 500 calls of 20 clients wait for one lock. One
// call of each is in the queue, and asks after as many seconds as there were
// calls when it came, at least five, give or take a tenth: one command a second
// in all, however many wait.
func TestCommandsOfIdleWaiters(t *testing.T) {
	ctx, cancel := context.WithCancel(within(t))
	s := server.Start(t, server.Redis{})
	l := must[*dlock.Lease](t)(openClient(t, s, nil).Mutex(t.Name()).Lock(ctx))
	const clients, calls = 20, 25
	done := make(chan error, clients*calls)
	began := time.Now()
	for range clients {
		m := openClient(t, s, nil).Mutex(t.Name())
		for range calls {
			go func() { _, err := m.Lock(ctx); done <- err }()
		}
	}
	c := plainClient(t, s)
	eventually(t, "all wait", func() bool { return c.ZCard(ctx, mainKey(t.Name())+":q").Val() == clients })
	subscribed(t, s, clients+1)
	awaitSilence(t, s)
	n := sent(t, s, func() { time.Sleep(6 * time.Second) })
	waited := time.Since(began).Seconds()
	asked, renewed := int64(max(5, waited/0.9)), int64(waited/10)
	const repeated = 5 // what a busy machine has not answered in time
	if n > asked+renewed+repeated {
		t.Errorf("%d commands in %.1f s", n, waited)
	}
	cancel()
	for range clients * calls {
		<-done
	}
	if err := l.Unlock(context.Background()); err != nil {
		t.Error(err)
	}
}

// awaitSilence waits until the server gets no more commands.
func awaitSilence(t *testing.T, s *server.Server) {
	t.Helper()
	eventually(t, "silence", func() bool {
		return sent(t, s, func() { time.Sleep(500 * time.Millisecond) }) == 0
	})
}
