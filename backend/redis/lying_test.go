package redis

import (
	"bytes"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	_ "github.com/dlock-go/dlock/backend/quorum"
	"github.com/dlock-go/dlock/internal/server"
)

// lies are replies that no server gives, each of which would end the process, or fill its
// memory, if it were taken at its word.
var lies = map[string]string{
	"a text of 2^63 bytes":  "$9223372036854775807\r\n",
	"a text of 2^31 bytes":  "$2147483647\r\n",
	"a list of 2^62":        "*4611686018427387904\r\n",
	"a map of 2^62":         "%4611686018427387904\r\n",
	"lists in lists":        strings.Repeat("*1\r\n", 8_000_000),
	"not of the protocol":   "HTTP/1.1 400 Bad Request\r\n\r\n",
	"a line without an end": strings.Repeat("+", 1<<20),
}

// liar is a server that answers what the one at addr does, but for requests with a word in
// them: it returns its address.
func liar(t *testing.T, addr, word, lie string) string {
	t.Helper()
	l := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	t.Cleanup(func() { _ = l.Close() })
	serve := func(client net.Conn) {
		defer client.Close()
		real, err := net.Dial("tcp", addr)
		if err != nil {
			return
		}
		defer real.Close()
		go func() { pump(client, real, nil) }()
		pump(real, client, func(request []byte) bool {
			lies := bytes.Contains(bytes.ToLower(request), []byte(word))
			if lies {
				_, _ = client.Write([]byte(lie))
			}
			return !lies
		})
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
	return l.Addr().String()
}

// pump passes on what comes from one connection to another, as long as pass says.
func pump(to, from net.Conn, pass func([]byte) bool) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if pass == nil || pass(buf[:n]) {
			_, _ = to.Write(buf[:n])
		}
	}
}

// TestServerThatLies has servers give replies that no client could bear, to all requests
// or to those to subscribe.
func TestServerThatLies(t *testing.T) {
	for what, lie := range lies {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			c, err := dlock.Open(within(t), "redis://"+liar(t, shared.Addr(), "\r\n", lie)+"?dial_timeout=2s", nil)
			if err == nil {
				t.Errorf("opened: %v", c.Close(within(t)))
			}
			if !errors.Is(err, dlock.ErrUnavailable) {
				t.Errorf("got %v", err)
			}
			ctx := within(t)
			holder := openClient(t, shared, nil).Mutex(t.Name())
			waiter := openURL(t, "redis://"+liar(t, shared.Addr(), "subscribe", lie), nil).Mutex(t.Name())
			lease := must[*dlock.Lease](t)(holder.Lock(ctx))
			got := make(chan *dlock.Lease)
			go func() { got <- must[*dlock.Lease](t)(waiter.Lock(ctx)) }()
			q := plainClient(t, shared)
			eventually(t, "it waits", func() bool { return q.ZCard(ctx, mainKey(t.Name())+":q").Val() == 1 })
			must[any](t)(nil, lease.Unlock(ctx))
			must[any](t)(nil, (<-got).Unlock(ctx))
		})
	}
}

// TestNodeThatLies has one server of a quorum give such replies.
func TestNodeThatLies(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	var hosts []string
	for range 2 {
		hosts = append(hosts, server.Start(t, server.Redis{}).Addr())
	}
	for what, lie := range lies {
		hosts := append(hosts[:2:2], liar(t, hosts[0], "eval", lie))
		c := openURL(t, "redlock://"+strings.Join(hosts, ",")+"?dlock.maxttl=1s&dlock.skew=1ms", &dlock.Options{TTL: time.Second})
		lease, err := c.Mutex(what).Lock(ctx)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		must[any](t)(nil, lease.Unlock(ctx))
	}
}

// TestTokenAhead has one server of a quorum offer a token after which none can grow: the
// others are not told of it.
func TestTokenAhead(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	var hosts []string
	for range 3 {
		hosts = append(hosts, server.Start(t, server.Redis{}).Addr())
	}
	evil := redis.NewClient(&redis.Options{Addr: hosts[0], DisableIdentity: true})
	t.Cleanup(func() { _ = evil.Close() })
	c := openURL(t, "redlock://"+strings.Join(hosts, ",")+"?dlock.maxttl=1s&dlock.skew=1ms", &dlock.Options{TTL: time.Second})
	for _, ahead := range []string{"8000000000000000", "9000000000000000000"} {
		must[int64](t)(evil.HSet(ctx, mainKey(t.Name()), "t", ahead).Result())
		lease := must[*dlock.Lease](t)(c.Mutex(t.Name()).Lock(ctx))
		if now := uint64(time.Now().UnixMicro()); lease.Token() > now+uint64(maxAhead.Microseconds()) {
			t.Errorf("token %d at %d", lease.Token(), now)
		}
		must[any](t)(nil, lease.Unlock(ctx))
	}
}

// TestGarbledRenewal has a server answer a renewal with what no script replies.
func TestGarbledRenewal(t *testing.T) {
	for _, reply := range []any{
		nil, "OK", int64(1), []any{}, []any{int64(1)}, []any{int64(1), int64(2), int64(3)}, []any{int64(1), int64(2), int64(0), int64(0)},
		[]any{int64(1), int64(2), int64(2), int64(0)}, []any{int64(1), int64(2), "1", int64(0)}, []any{int64(1), int64(2), int64(-1 << 63), int64(0)},
		[]any{int64(1), int64(2), int64(1), "x"}, []any{int64(1), int64(2), int64(1), nil}, []any{int64(1), int64(2), int64(1), int64(1<<53 + 1)},
		[]any{nil, int64(2)},
	} {
		var a answer
		a.read(reply)
		if got, err := readExpiries(a, 1); !errors.Is(fail(err), backend.ErrUnavailable) {
			t.Errorf("%v: %v, %v", reply, got, err)
		}
	}
}
