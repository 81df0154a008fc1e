package redis

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/internal/server"
)

// linked returns a wire that has its client for itself.
func linked(t *testing.T, s *server.Server) *wire {
	t.Helper()
	c := plainClient(t, s)
	w := newWire(c, 0)
	w.own = c
	t.Cleanup(w.close)
	return w
}

func TestReadReply(t *testing.T) {
	for text, want := range map[string]any{
		"+OK\r\n":                   "OK",
		":-17\r\n":                  int64(-17),
		"$3\r\na\nb\r\n":            "a\nb",
		"$0\r\n\r\n":                "",
		"$-1\r\n":                   redis.Nil,
		"*-1\r\n":                   redis.Nil,
		"*0\r\n":                    []any{},
		"-NOSCRIPT no\r\n":          refusal("NOSCRIPT no"),
		"*3\r\n:1\r\n$-1\r\n+x\r\n": []any{int64(1), nil, "x"},
		"*2\r\n*1\r\n:1\r\n-no\r\n": []any{[]any{int64(1)}, refusal("no")},
	} {
		reply, err := readReply(bufio.NewReader(strings.NewReader(text)))
		if err != nil {
			reply = err
		}
		if !reflect.DeepEqual(reply, want) {
			t.Errorf("%q is %#v, want %#v", text, reply, want)
		}
	}
	for _, text := range []string{"", "\n", "\r\n", ":x\r\n", ":1", "$3\r\nab", "*2\r\n:1\r\n", "!5\r\nhello\r\n"} {
		reply, err := readReply(bufio.NewReader(strings.NewReader(text)))
		if _, said := replied(err); err == nil || said {
			t.Errorf("%q is %v, %v, want an error of the connection", text, reply, err)
		}
	}
}

// TestLinkSaysWhatTheLibrarySays has a server answer what a link has written
// itself.
func TestLinkSaysWhatTheLibrarySays(t *testing.T) {
	ctx := within(t)
	w := linked(t, shared)
	text, number := "text\r\n", -5
	for range 3 { // the first goes through the library
		echo := []any{"eval", "return {ARGV[1], ARGV[2], #ARGV[3], ARGV[4], ARGV[5]}", 0,
			text, &text, "", number, uint64(1) << 63}
		got := must[any](t)(w.do(ctx, limit, echo, ordinary))
		if want := []any{text, text, int64(0), "-5", "9223372036854775808"}; !reflect.DeepEqual(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		_, err := w.do(ctx, limit, []any{"evalsha", strings.Repeat("0", 40), 0}, ordinary)
		if !redis.HasErrorPrefix(err, "NOSCRIPT") {
			t.Errorf("an unknown script: %v", err)
		}
	}
}

// TestLinkOfAStoppedServer cancels a call that nobody answers. The command is
// not lost, and nobody else gets its reply.
func TestLinkOfAStoppedServer(t *testing.T) {
	s := server.Start(t, server.Redis{})
	w := linked(t, s)
	incr := []any{"incr", "key"}
	must[any](t)(w.do(within(t), limit, incr, ordinary))
	must[any](t)(nil, s.Pause())
	for range 3 {
		ctx, cancel := context.WithCancelCause(within(t))
		gone := errors.New("gone")
		time.AfterFunc(50*time.Millisecond, func() { cancel(gone) })
		if _, err := w.do(ctx, limit, incr, ordinary); !errors.Is(err, gone) {
			t.Errorf("a stopped server: %v", err)
		}
	}
	must[any](t)(nil, s.Resume())
	rest(t, w)
	first := must[any](t)(w.do(within(t), limit, incr, ordinary)).(int64)
	if second := must[any](t)(w.do(within(t), limit, incr, ordinary)); second != first+1 {
		t.Errorf("%v after %v", second, first)
	}
}

// rest waits until no command is under way. A reply is there before its sender
// has gone.
func rest(t *testing.T, w *wire) {
	t.Helper()
	eventually(t, "nothing is under way", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return !w.busy
	})
}

// TestLinksOfAStoppedServer has ever more callers pass those that wait.
func TestLinksOfAStoppedServer(t *testing.T) {
	s := server.Start(t, server.Redis{})
	w := linked(t, s)
	w.own.Options().PoolSize = 3
	ping := []any{"ping"}
	must[any](t)(w.do(within(t), limit, ping, ordinary))
	must[any](t)(nil, s.Pause())
	for range 10 {
		p := w.post(limit, ping, ordinary)
		if _, err := p.await(within(t), stalled+20*time.Millisecond); err == nil {
			t.Error("a stopped server answers")
		}
	}
	w.mu.Lock()
	n := len(w.links)
	w.mu.Unlock()
	if n != 3 {
		t.Errorf("%d links, want 3", n)
	}
	must[any](t)(nil, s.Resume())
	must[any](t)(w.do(within(t), limit, ping, ordinary))
}

// A readConn counts the reads that have begun.
type readConn struct {
	*net.TCPConn
	reads *atomic.Int64
}

func (c readConn) Read(b []byte) (int, error) {
	c.reads.Add(1)
	return c.TCPConn.Read(b)
}

// TestCloseOfALinkThatWaits closes a wire on which a command waits for a reply of a
// server that has stopped.
func TestCloseOfALinkThatWaits(t *testing.T) {
	s := server.Start(t, server.Redis{})
	w := linked(t, s)
	var reads atomic.Int64
	w.own.Options().Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return readConn{conn.(*net.TCPConn), &reads}, nil
	}
	ping := []any{"ping"}
	must[any](t)(w.do(within(t), limit, ping, ordinary))
	rest(t, w)
	must[any](t)(nil, s.Pause())
	before := reads.Load()
	p := w.post(limit, ping, ordinary)
	eventually(t, "somebody reads", func() bool { return reads.Load() > before })
	closed := make(chan struct{})
	go func() { defer close(closed); w.close() }()
	select {
	case <-closed:
	case <-within(t).Done():
		t.Fatal("a wire does not close")
	}
	if _, err := p.await(within(t), limit); err == nil {
		t.Error("a stopped server answers")
	}
	must[any](t)(nil, s.Resume())
}

// TestBrokenLink has the server end connections, with and without a pause before
// the next command. Only one that follows at once can fail, once.
func TestBrokenLink(t *testing.T) {
	ctx := within(t)
	s := server.Start(t, server.Redis{})
	w := linked(t, s)
	admin := plainClient(t, s)
	kill := func() {
		must[int64](t)(admin.ClientKillByFilter(ctx, "type", "normal", "skipme", "yes").Result())
		eventually(t, "the connection is closed", func() bool {
			return strings.Count(admin.ClientList(ctx).Val(), "\n") == 1
		})
	}
	ping := []any{"ping"}
	for range 3 {
		must[any](t)(w.do(ctx, limit, ping, ordinary))
		kill()
		rest(t, w)
		w.mu.Lock()
		if w.idle != nil {
			w.idle.used = time.Time{}
		}
		w.mu.Unlock()
		must[any](t)(w.do(ctx, limit, ping, ordinary))
		kill()
		_, _ = w.do(ctx, limit, ping, ordinary)
		must[any](t)(w.do(ctx, limit, ping, ordinary))
	}
	rest(t, w)
	w.mu.Lock()
	n := len(w.links)
	w.mu.Unlock()
	if n != 1 {
		t.Errorf("%d links, want 1", n)
	}
	w.close()
	for range 2 {
		if _, err := w.do(ctx, limit, ping, ordinary); err == nil {
			t.Error("a closed wire carries commands")
		}
	}
	if _, err := w.do(ctx, limit, ping, ordinary); !errors.Is(err, redis.ErrClosed) {
		t.Errorf("a closed wire: %v", err)
	}
}

// TestRepliesFindTheirCallers has connections broken while several pipelines are
// under way. Each caller gets the reply to what they asked, or an error.
func TestRepliesFindTheirCallers(t *testing.T) {
	ctx := within(t)
	s := server.Start(t, server.Redis{})
	w, admin := linked(t, s), plainClient(t, s)
	var all sync.WaitGroup
	var answered atomic.Int64
	stop := make(chan struct{})
	for i := range 8 * many {
		all.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				asked := fmt.Sprint(i, " ", n)
				switch reply, err := w.do(ctx, limit, []any{"echo", asked}, ordinary); {
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

// TestDisusedLink has a wire give up its link after a while without commands. Who
// still has the wire can use it.
func TestDisusedLink(t *testing.T) {
	ctx := within(t)
	s := server.Start(t, server.Redis{})
	w := linked(t, s)
	admin := plainClient(t, s)
	connections := func() int { return strings.Count(admin.ClientList(ctx).Val(), "\n") }
	ping := []any{"ping"}
	before := time.Now()
	must[any](t)(w.do(ctx, limit, ping, ordinary))
	rest(t, w)
	if w.retire(before) || connections() != 2 {
		t.Fatal("a link is given up that is used")
	}
	if !w.retire(time.Now()) {
		t.Fatal("a link is kept that is not used")
	}
	eventually(t, "the connection is closed", func() bool { return connections() == 1 })
	must[any](t)(w.do(ctx, limit, ping, ordinary))
	rest(t, w)
	if len(w.links) > 0 {
		t.Error("a retired wire has a link")
	}
}

// TestLinksOfACluster has a link to each master that is asked, but to one that was
// not asked for long only until there is another.
func TestLinksOfACluster(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	c, _ := startCluster(t, server.Redis{})
	b := New(redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), DisableIdentity: true}), nil)
	b.own(true)
	ask := func(i int) *wire {
		name := fmt.Sprint(t.Name(), i)
		for range 2 {
			must[any](t)(b.wire.do(ctx, limit, []any{"eval", "return 1", 1, name}, ordinary))
		}
		w := must[*wire](t)(b.nodes.wire(ctx, limit, name))
		rest(t, w)
		return w
	}
	first := ask(0)
	if len(first.links) != 1 {
		t.Fatalf("%d links to a master", len(first.links))
	}
	first.started = time.Now().Add(-2 * disused)
	for i := 1; ask(i) == first; i++ {
		first.started = time.Now().Add(-2 * disused)
	}
	if len(first.links) > 0 || len(b.nodes.wires) != 1 {
		t.Errorf("%d links to a master that is not asked any more, %d masters are kept", len(first.links), len(b.nodes.wires))
	}
	if again := ask(0); again == first || len(again.links) != 1 {
		t.Error("a master that is asked again has no link")
	}
	must[any](t)(nil, b.Close(ctx))
	eventually(t, "no connection is left", func() bool {
		for _, s := range c.Masters {
			if strings.Contains(must[string](t)(plainClient(t, s).ClientList(ctx).Result()), "cmd=eval ") {
				return false
			}
		}
		return true
	})
	runtime.KeepAlive(b) // the collector closes what is forgotten
}
