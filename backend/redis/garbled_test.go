package redis

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
)

// A garbler is a server that answers scripts with whatever it is told to.
type garbler struct {
	script  func() string // a reply
	message func() string // after a subscription was acknowledged; nil: none
	asked   atomic.Int64  // how many scripts
	heard   chan struct{} // receives, if there is room, for each subscription
	ln      net.Listener
}

func newGarbler(t *testing.T, l *garbler) *redis.Client {
	t.Helper()
	l.ln = must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	l.heard = make(chan struct{}, 1)
	t.Cleanup(func() { _ = l.ln.Close() })
	go func() {
		for {
			conn, err := l.ln.Accept()
			if err != nil {
				return
			}
			go l.serve(conn)
		}
	}()
	c := redis.NewClient(&redis.Options{Addr: l.ln.Addr().String(), DisableIdentity: true, Protocol: 2, MaxRetries: -1})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func (l *garbler) serve(conn net.Conn) {
	defer conn.Close()
	for in := bufio.NewReader(conn); ; {
		args := readRequest(in)
		if args == nil {
			return
		}
		reply := "+OK\r\n"
		switch strings.ToLower(args[0]) {
		case "hello":
			reply = "-ERR unknown command 'hello'\r\n"
		case "evalsha", "eval":
			l.asked.Add(1)
			reply = l.script()
		case "subscribe":
			reply = fmt.Sprintf("*3\r\n$9\r\nsubscribe\r\n$%d\r\n%s\r\n:1\r\n", len(args[1]), args[1])
			if l.message != nil {
				reply += l.message()
			}
			select {
			case l.heard <- struct{}{}:
			default:
			}
		}
		if _, err := io.WriteString(conn, reply); err != nil {
			return
		}
	}
}

// readRequest reads one command; nil if there is none any more.
func readRequest(in *bufio.Reader) (args []string) {
	number := func(mark byte) int {
		line, err := in.ReadString('\n')
		n, e := strconv.Atoi(strings.TrimRight(strings.TrimPrefix(line, string(mark)), "\r\n"))
		if err != nil || e != nil {
			return 0
		}
		return n
	}
	for range number('*') {
		text := make([]byte, number('$')+2)
		if _, err := io.ReadFull(in, text); err != nil {
			return nil
		}
		args = append(args, string(text[:len(text)-2]))
	}
	return args
}

// TestGarbledReplies has every request about a lock answered by what no script says.
// It is an error, and no panic, whatever numbers there are.
func TestGarbledReplies(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(3, 4))
	numbers := []int64{0, 1, -1, 2, 5, 1 << 31, 1 << 53, 1<<53 + 1, 1<<63 - 1, -1 << 63}
	words := []string{"GRANTED", "QUEUED", "HELD", "GONE", "DEAD", "NOT_READY", "OK", "LOST", "LEFT", "NOT_HELD", "FAILED", "", "x"}
	var value func(depth int) string
	value = func(depth int) string {
		switch pick := rnd.IntN(8); {
		case pick < 3:
			return fmt.Sprintf(":%d\r\n", numbers[rnd.IntN(len(numbers))])
		case pick < 4:
			return fmt.Sprintf(":%d\r\n", time.Now().UnixMicro()/[]int64{1, 1000}[rnd.IntN(2)])
		case pick < 5:
			return "$-1\r\n"
		case pick < 7 && depth < 3:
			n := rnd.IntN(8)
			text := fmt.Sprintf("*%d\r\n", n)
			for range n {
				text += value(depth + 1)
			}
			return text
		default:
			word := words[rnd.IntN(len(words))]
			return fmt.Sprintf("$%d\r\n%s\r\n", len(word), word)
		}
	}
	list := func() string { // a word and numbers, as scripts do
		word, n := words[rnd.IntN(len(words))], rnd.IntN(7)
		text := fmt.Sprintf("*%d\r\n$%d\r\n%s\r\n", n+1, len(word), word)
		for range n {
			text += value(3)
		}
		return text
	}
	replies := make(chan string)
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		for {
			reply := value(0)
			if rnd.IntN(2) == 0 {
				reply = list()
			}
			select {
			case replies <- reply:
			case <-ended:
				return
			}
		}
	}()
	b := New(newGarbler(t, &garbler{script: func() string {
		select {
		case reply := <-replies:
			return reply
		case <-ended:
			return ":0\r\n"
		}
	}}), &Options{PollOnly: true, Poll: time.Millisecond})
	t.Cleanup(func() { _ = b.Close(expired()) })
	for i := range 1000 {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Millisecond)
		r := backend.Request{
			Name: t.Name(), ID: backend.ID{Client: "c", Seq: uint64(i + 1)}, TTL: time.Second,
			Mode: backend.Mode(1 + i%2), Wait: i%3 == 0, Fixed: i%5 == 0,
		}
		h, err := b.Acquire(ctx, r)
		if err == nil && h.Token == 0 {
			t.Errorf("a hold without a token: %+v", h)
		}
		if h == nil {
			h = &backend.Hold{Request: r}
			h.State = &holdState{id: b.ids.newID(lockKey(r.Name), &r, 0, true, nil), hold: h}
			_, _ = b.Vote(ctx, r, backend.Ballot{Rejoin: time.Second})
		}
		b.Renew(ctx, []*backend.Hold{h, h, h}, func(*backend.Hold, error) {})
		_ = b.Reenter(ctx, h, 2, 1)
		_ = b.RaiseToken(ctx, h, 5)
		_ = b.Downgrade(ctx, h)
		_ = b.Expire(ctx, h, time.Second)
		b.ReleaseAll(ctx, []*backend.Hold{h, h}, func(*backend.Hold, error) {})
		_ = b.Release(ctx, h)
		cancel()
	}
}

// expired is a context that is done.
func expired() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// TestGarbledReplyIsUnavailable has requests about a hold answered by what no script
// says: that is no word of the server that the lock is held by another, or lost.
func TestGarbledReplyIsUnavailable(t *testing.T) {
	t.Parallel()
	granted := func() string { return fmt.Sprintf(":%d\r\n", time.Now().UnixMicro()) }
	for reply, all := range map[string]bool{ // whether to all requests, or to a renewal alone
		"+PONG\r\n":                      true,
		"$-1\r\n":                        true,
		"*0\r\n":                         true,
		"*1\r\n$1\r\nx\r\n":              true,
		"*2\r\n$-1\r\n$-1\r\n":           true,
		"*1\r\n:1\r\n":                   true,
		"*4\r\n:1\r\n:1\r\n:9\r\n:1\r\n": false,
		"*4\r\n:1\r\n:1\r\n:0\r\n:1\r\n": false,
		"*4\r\n:1\r\n:1\r\n:-9223372036854775808\r\n:1\r\n": false,
		"*4\r\n:1\r\n:1\r\n:1\r\n$1\r\nx\r\n":               false,
		"*2\r\n:5000\r\n:2\r\n":                             false, // a lease that is over
	} {
		t.Run(strconv.Quote(reply), func(t *testing.T) {
			t.Parallel()
			l := &garbler{script: granted}
			b := New(newGarbler(t, l), &Options{PollOnly: true})
			t.Cleanup(func() { _ = b.Close(expired()) })
			h := must[*backend.Hold](t)(b.Acquire(within(t), backend.Request{
				Name: t.Name(), ID: backend.ID{Client: "c", Seq: 1}, Mode: backend.Exclusive, TTL: loadTTL,
			}))
			lie := func() string { return reply }
			l.script = lie
			before := h.Granted
			b.Renew(within(t), []*backend.Hold{h}, func(_ *backend.Hold, err error) { is(t, err, backend.ErrUnavailable) })
			if h.Granted != before {
				t.Errorf("granted for %v", h.Granted)
			}
			if !all {
				return
			}
			is(t, b.Reenter(within(t), h, 2, 1), backend.ErrUnavailable)
			is(t, b.Downgrade(within(t), h), backend.ErrUnavailable)
			is(t, b.RaiseToken(within(t), h, 5), backend.ErrUnavailable)
			is(t, b.Release(within(t), h), backend.ErrUnavailable)
			_, err := b.Acquire(within(t), backend.Request{
				Name: t.Name(), ID: backend.ID{Client: "c", Seq: 2}, Mode: backend.Exclusive, TTL: loadTTL,
			})
			is(t, err, backend.ErrUnavailable)
		})
	}
}

// TestNonsenseOnASubscription sends what the client library panics on where messages
// come. Locks go on, and the client subscribes again.
func TestNonsenseOnASubscription(t *testing.T) {
	t.Parallel()
	l := &garbler{
		script:  func() string { return fmt.Sprintf(":%d\r\n", time.Now().UnixMicro()) },
		message: func() string { return "*1\r\n:1\r\n" },
	}
	b := New(newGarbler(t, l), nil)
	t.Cleanup(func() { _ = b.Close(expired()) })
	if _, err := b.Acquire(within(t), backend.Request{
		Name: t.Name(), ID: backend.ID{Client: "c", Seq: 1}, Mode: backend.Exclusive, TTL: time.Second,
	}); err != nil {
		t.Error(err)
	}
	for range 3 {
		select {
		case <-l.heard:
		case <-within(t).Done():
			t.Fatal(errors.New("it does not subscribe again"))
		}
	}
}

// A garbling is a hook that puts nonsense in the place of the replies to a script.
type garbling struct{ script *script }

func (garbling) DialHook(next redis.DialHook) redis.DialHook { return next }

func (garbling) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (g garbling) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if whole, ok := cmd.(unrepeated); ok && err == nil && len(whole.Args()) > 1 && whole.Args()[1] == g.script.sha {
			whole.SetVal([]any{"x", int64(1)})
		}
		return err
	}
}

// TestGarbledGrantIsGivenBack has nobody understand the reply to a request that was granted
// the lock, or a place in its queue.
func TestGarbledGrantIsGivenBack(t *testing.T) {
	t.Parallel()
	ctx, admin := within(t), plainClient(t, shared)
	for _, wait := range []bool{false, true} {
		must[string](t)(admin.ScriptLoad(ctx, acquireScript.source).Result())
		rdb := plainClient(t, shared)
		rdb.AddHook(garbling{acquireScript})
		b := New(rdb, &Options{PollOnly: true})
		t.Cleanup(func() { _ = b.Close(expired()) })
		r := backend.Request{
			Name: t.Name(), ID: backend.ID{Client: t.Name(), Seq: 1}, Mode: backend.Exclusive, TTL: 10 * limit, Wait: wait,
		}
		if wait {
			other := New(plainClient(t, shared), &Options{PollOnly: true})
			t.Cleanup(func() { _ = other.Close(within(t)) })
			must[*backend.Hold](t)(other.Acquire(ctx, backend.Request{
				Name: t.Name(), ID: backend.ID{Client: "holder"}, Mode: backend.Exclusive, TTL: 10 * limit,
			}))
		}
		_, err := b.Acquire(ctx, r)
		is(t, err, backend.ErrUnavailable)
		eventually(t, "nothing of it is left", func() bool {
			fields := must[map[string]string](t)(admin.HGetAll(ctx, mainKey(r.Name)).Result())
			queued := must[int64](t)(admin.ZCard(ctx, mainKey(r.Name)+":q").Result())
			return !strings.Contains(fields["o"], t.Name()) && queued == 0
		})
	}
}
