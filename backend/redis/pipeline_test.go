package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/faultnet"
	"github.com/dlock-go/dlock/internal/server"
)

// rest waits until no command is under way. A reply is there before its sender
// has gone.
func rest(t testing.TB, p *pipeline) {
	t.Helper()
	eventually(t, "nothing is under way", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.senders == 0
	})
}

// underWay waits until n pipelines are under way and nothing is queued.
func underWay(t testing.TB, p *pipeline, n int) {
	t.Helper()
	eventually(t, "pipelines are under way", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.senders == n && !p.starting && len(p.queue) == 0
	})
}

// TestAbandonedCommandsStay stops a server while commands queue behind one
// under way. Their callers go, so they are not sent when it is back.
func TestAbandonedCommandsStay(t *testing.T) {
	s := server.Start(t, server.Redis{})
	p := newPipeline(plainClient(t, s), 0)
	p.width = 1
	for range 1000 {
		p.trip.Observe(latest) // it does not count as stalled
	}
	ctx := within(t)
	incr := []any{"incr", "key"}
	must[any](t)(p.do(ctx, limit, incr, ordinary))
	rest(t, p)
	must[any](t)(nil, s.Pause())
	first := p.enqueue(ctx, limit, incr, ordinary)
	underWay(t, p, 1)
	var all sync.WaitGroup
	for range 5 {
		c := p.enqueue(ctx, limit, incr, ordinary)
		all.Go(func() {
			if _, err := c.await(ctx, time.Millisecond); !errors.Is(err, errNoReply) {
				t.Errorf("a stopped server: %v", err)
			}
		})
	}
	all.Wait()
	must[any](t)(nil, s.Resume())
	must[any](t)(first.await(ctx, limit))
	if n := must[any](t)(p.do(ctx, limit, incr, ordinary)); n != int64(3) {
		t.Errorf("executed %v times, want 3", n)
	}
}

// TestCallersLeaveAStoppedServer cancels calls that nobody answers. The commands
// are not lost, and nobody else gets their replies.
func TestCallersLeaveAStoppedServer(t *testing.T) {
	t.Parallel()
	s := server.Start(t, server.Redis{})
	p := newPipeline(plainClient(t, s), 0)
	incr := []any{"incr", "key"}
	must[any](t)(p.do(within(t), limit, incr, ordinary))
	must[any](t)(nil, s.Pause())
	for range 3 {
		ctx, cancel := context.WithCancelCause(within(t))
		gone := errors.New("gone")
		time.AfterFunc(50*time.Millisecond, func() { cancel(gone) })
		if _, err := p.do(ctx, limit, incr, ordinary); backend.OwnersCause(err) != gone {
			t.Errorf("a stopped server: %v", err)
		}
	}
	must[any](t)(nil, s.Resume())
	rest(t, p)
	first := must[any](t)(p.do(within(t), limit, incr, ordinary)).(int64)
	if second := must[any](t)(p.do(within(t), limit, incr, ordinary)); second != first+1 {
		t.Errorf("%v after %v", second, first)
	}
}

// TestStalledPipelinesAreFew has ever more callers pass those that wait for a
// stopped server.
func TestStalledPipelinesAreFew(t *testing.T) {
	t.Parallel()
	s := server.Start(t, server.Redis{})
	c := redis.NewClient(&redis.Options{Addr: s.Addr(), DisableIdentity: true, ReadTimeout: limit}) // none of them ends before
	t.Cleanup(func() { _ = c.Close() })
	p := newPipeline(c, 0)
	ping := []any{"ping"}
	must[any](t)(p.do(within(t), limit, ping, ordinary))
	must[any](t)(nil, s.Pause())
	most := width * (1 + spare)
	count := func() int {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.senders
	}
	eventually(t, "as many as there may be are under way", func() bool {
		_, _ = p.do(within(t), time.Millisecond, ping, ordinary)
		return count() == most
	})
	for range 100 {
		_, _ = p.do(within(t), time.Millisecond, ping, ordinary)
	}
	if n := count(); n != most {
		t.Errorf("%d pipelines are under way, want %d", n, most)
	}
	must[any](t)(nil, s.Resume())
	must[any](t)(p.do(within(t), limit, ping, ordinary))
}

// TestPipelinesOfADistantServer has many goroutines send to a server that is far
// away. Its replies are not late: commands wait for their turn.
func TestPipelinesOfADistantServer(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	const distance = 100 * time.Millisecond
	proxy := proxied(t)
	proxy.Delay(faultnet.BothWays, distance/2, 0)
	c := redis.NewClient(&redis.Options{Addr: proxy.Addr(), DisableIdentity: true})
	t.Cleanup(func() { _ = c.Close() })
	p := newPipeline(c, 0)
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			for range 10 {
				must[any](t)(p.do(ctx, limit, []any{"ping"}, ordinary))
			}
		})
	}
	all.Wait()
	if late := p.replyLimit(); late < distance {
		t.Errorf("a reply is late after %v, and takes %v", late, distance)
	}
}

// TestServerThatBecomesSlow has the replies of a server that was near come late. They
// are waited for.
func TestServerThatBecomesSlow(t *testing.T) {
	ctx := within(t)
	proxy := proxied(t)
	c := redis.NewClient(&redis.Options{
		Addr: proxy.Addr(), DisableIdentity: true, ContextTimeoutEnabled: true, MaxRetries: -1,
	})
	t.Cleanup(func() { _ = c.Close() })
	p := newPipeline(c, 0)
	ping := []any{"ping"}
	for range 100 {
		must[any](t)(p.do(ctx, limit, ping, ordinary))
	}
	rest(t, p)
	proxy.Delay(faultnet.ToClient, 10*p.replyLimit(), 0)
	must[any](t)(p.do(ctx, limit, ping, ordinary))
}

// TestStalledConnectionIsPassed has nothing come through one connection. Other
// commands do not wait for it, and it is not closed: the reply that it owes comes
// when it can.
func TestStalledConnectionIsPassed(t *testing.T) {
	ctx := within(t)
	through := make(chan *faultnet.Proxy, 2)
	stalls, flows := proxied(t), proxied(t)
	through <- stalls
	through <- flows
	c := redis.NewClient(&redis.Options{
		DisableIdentity: true, MaxRetries: -1, ReadTimeout: limit,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			select {
			case p := <-through:
				return p.DialContext(ctx, network, addr)
			default:
				return nil, errors.New("one connection stalls, and one is enough beside it")
			}
		},
	})
	t.Cleanup(func() { _ = c.Close() })
	p := newPipeline(c, 0)
	p.width = 1
	echo := func(text string) []any { return []any{"echo", text} }
	must[any](t)(p.do(ctx, limit, echo("well"), ordinary))
	rest(t, p)
	stalls.Blackhole(faultnet.ToClient)
	late := p.enqueue(ctx, limit, echo("late"), ordinary)
	underWay(t, p, 1)
	for i := range 10 {
		text := fmt.Sprint("in time ", i)
		if reply := must[any](t)(p.do(ctx, limit, echo(text), ordinary)); reply != text {
			t.Errorf("asked %q, got %q", text, reply)
		}
	}
	if _, err := late.await(ctx, 0); !errors.Is(err, errNoReply) {
		t.Fatalf("nothing comes through, and yet: %v", err)
	}
	stalls.Restore(faultnet.ToClient)
	if reply := must[any](t)(late.await(ctx, limit)); reply != "late" {
		t.Errorf("the reply that came late is %q", reply)
	}
}

// TestRepliesFindTheirCallers has connections broken while several pipelines are
// under way. Each caller gets the reply to what they asked, or an error.
func TestRepliesFindTheirCallers(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	s := server.Start(t, server.Redis{})
	p, admin := newPipeline(plainClient(t, s), 0), plainClient(t, s)
	var all sync.WaitGroup
	var answered atomic.Int64
	stop := make(chan struct{})
	for i := range 128 {
		all.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				asked := fmt.Sprint(i, " ", n)
				switch reply, err := p.do(ctx, limit, []any{"echo", asked}, ordinary); {
				case err == nil && reply != asked:
					t.Errorf("asked %q, got %q", asked, reply)
				case err == nil:
					answered.Add(1)
				case errors.Is(err, errNoReply) || ctx.Err() != nil:
					t.Error(err)
					return
				}
			}
		})
	}
	for range 20 {
		before := answered.Load()
		eventually(t, "many were answered", func() bool { return answered.Load() > before+1000 })
		must[int64](t)(admin.ClientKillByFilter(ctx, "type", "normal", "skipme", "yes").Result())
	}
	close(stop)
	all.Wait()
}

// TestNonsenseIsNoPanic has a server answer with what the client library panics
// on, to one command and to a pipeline.
func TestNonsenseIsNoPanic(t *testing.T) {
	ln := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go answerNonsense(conn)
		}
	}()
	c := redis.NewClient(&redis.Options{Addr: ln.Addr().String(), DisableIdentity: true, Protocol: 2, MaxRetries: -1})
	t.Cleanup(func() { _ = c.Close() })
	p := newPipeline(c, 0)
	for _, n := range []int{1, 5} {
		var cmds [][]any
		for range n {
			cmds = append(cmds, []any{"get", "x"})
		}
		for _, reply := range posted(t, p, ordinary, cmds...) {
			err, _ := reply.(error)
			is(t, fail(err), backend.ErrUnavailable)
			if isUntouched(err) {
				t.Errorf("%v: a command that was sent is taken for one that was not", err)
			}
		}
	}
}

// answerNonsense greets a client, and answers a get with a string of an impossible
// length.
func answerNonsense(conn net.Conn) {
	defer conn.Close()
	room := make([]byte, 4096)
	for {
		n, err := conn.Read(room)
		if err != nil {
			return
		}
		reply := "+PONG\r\n"
		switch request := string(room[:n]); {
		case strings.Contains(strings.ToLower(request), "hello"):
			reply = "-ERR unknown command 'hello'\r\n"
		case strings.Contains(strings.ToLower(request), "get"):
			reply = "$9223372036854775807\r\n"
		}
		if _, err := conn.Write([]byte(reply)); err != nil {
			return
		}
	}
}

// TestColdClusterIsAskedOnce has many take locks at once through a client that
// does not know the cluster yet.
func TestColdClusterIsAskedOnce(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	c, _ := startCluster(t, server.Redis{})
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), DisableIdentity: true})
	t.Cleanup(func() { _ = rdb.Close() })
	n := newCluster(rdb, 0)
	asked := func() (sum int64) {
		for _, s := range append(c.Masters[:3:3], c.Replicas...) {
			sum += commandsOf(t, s)["cluster|slots"] + commandsOf(t, s)["cluster"] // of an old server: all of CLUSTER
		}
		return sum
	}
	before := asked()
	var all sync.WaitGroup
	for range 500 {
		all.Go(func() { must[*redis.Client](t)(n.owner(ctx, limit, mainKey(t.Name()))) })
	}
	all.Wait()
	if got := asked() - before; got != 1 {
		t.Errorf("asked %d times who has which slots", got)
	}
}
