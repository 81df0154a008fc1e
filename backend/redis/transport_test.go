package redis

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/faultnet"
	"github.com/dlock-go/dlock/internal/server"
)

// ways are how a program gets a client, both with a server at addr.
var ways = map[string]func(t *testing.T, addr string, o *dlock.Options) *dlock.Client{
	"Open": func(t *testing.T, addr string, o *dlock.Options) *dlock.Client {
		return openURL(t, "redis://"+addr, o)
	},
	"New": func(t *testing.T, addr string, o *dlock.Options) *dlock.Client {
		return newClient(t, redis.NewClient(&redis.Options{Addr: addr, DisableIdentity: true}), o)
	},
}

// newClient returns a client on one of the client library.
func newClient(t testing.TB, c redis.UniversalClient, o *dlock.Options) *dlock.Client {
	t.Helper()
	t.Cleanup(func() { _ = c.Close() })
	client := must[*dlock.Client](t)(dlock.New(New(c, nil), o))
	t.Cleanup(func() { must[any](t)(nil, client.Close(within(t))) })
	return client
}

// TestDistanceClosesNoConnection has many goroutines take locks on a server that is
// far away. A reply that is a round trip away is not late: nothing goes past it, and
// no connection is given up.
func TestDistanceClosesNoConnection(t *testing.T) {
	const goroutines, cycles = 32, 4
	for how, client := range ways {
		for _, distance := range []time.Duration{30 * time.Millisecond, 60 * time.Millisecond, 100 * time.Millisecond} {
			t.Run(fmt.Sprint(how, "/", distance), func(t *testing.T) {
				t.Parallel()
				ctx := within(t)
				p := proxied(t)
				p.Delay(faultnet.BothWays, distance/2, 0)
				c := client(t, p.Addr(), nil)
				var all sync.WaitGroup
				for i := range goroutines {
					all.Go(func() {
						if err := turns(ctx, c.Mutex(fmt.Sprint(t.Name(), i)), cycles); err != nil {
							t.Error(err)
						}
					})
				}
				all.Wait()
				most := 2*width*(1+spare) + 1 // for single commands and for pipelines, and the subscription
				if s := p.Stats(); s.Live != s.Accepted || s.Accepted > most {
					t.Errorf("%d of %d connections are left", s.Live, s.Accepted)
				}
			})
		}
	}
}

// TestBusyClientLeavesADemotedMaster swaps a master and its replica behind an address
// that stays. The connections to the old master stay open: those that are in use are
// given up for its word alone.
func TestBusyClientLeavesADemotedMaster(t *testing.T) {
	t.Parallel()
	for how, client := range ways {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			r := server.StartReplicated(t, 1, server.Redis{})
			p := must[*faultnet.Proxy](t)(faultnet.Listen(r.Primary.Addr()))
			t.Cleanup(func() { _ = p.Close() })
			ttl := plannedLease.TTL
			c := client(t, p.Addr(), plannedLease)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			held := must[*dlock.Lease](t)(c.Mutex(t.Name() + "/held").Lock(ctx))
			var locks [4]atomic.Int64
			var all sync.WaitGroup
			for i := range locks {
				all.Go(func() {
					m := c.Mutex(fmt.Sprint(t.Name(), i))
					for ; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
						if turns(ctx, m, 1) == nil {
							locks[i].Add(1)
						}
					}
				})
			}
			works := func() {
				for i := range locks {
					before := locks[i].Load()
					eventually(t, "locks are taken", func() bool { return locks[i].Load() > before+3 })
				}
			}
			works()
			p.SetTarget(r.Replicas[0].Addr())
			must[any](t)(plainClient(t, r.Primary).Do(ctx, "failover").Result())
			promoted(t, r.Replicas[0])
			demoted(t, r.Primary)
			began := time.Now()
			works()
			eventually(t, "the lease would be over", func() bool { return time.Since(began) > ttl })
			if err := held.Err(); err != nil {
				t.Errorf("a lock that was held all along: %v", err)
			}
			cancel()
			all.Wait()
		})
	}
}

// A span is what a tracer keeps in a context.
type span struct{}

// A tracer is a hook that notes under whose span each script is sent, as those of
// OpenTelemetry do.
type tracer struct {
	mu    sync.Mutex
	spans map[string][]any // of each script, by main key; nil: it had none
}

func (tr *tracer) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (tr *tracer) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		tr.note(ctx, cmd)
		return next(ctx, cmd)
	}
}

func (tr *tracer) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			tr.note(ctx, cmd)
		}
		return next(ctx, cmds)
	}
}

func (tr *tracer) note(ctx context.Context, cmd redis.Cmder) {
	if strings.HasPrefix(cmd.Name(), "eval") {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		k := fmt.Sprint(stringsOf(cmd.Args()[firstKey:])[0])
		tr.spans[k] = append(tr.spans[k], ctx.Value(span{}))
	}
}

// take returns the spans that have been noted for a lock, and forgets all.
func (tr *tracer) take(name string) []any {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	defer clear(tr.spans)
	return tr.spans[mainKey(name)]
}

// TestHooksSeeTheCallersContext has a client with a hook take and release locks, and
// renew one. Each request of a Lock or an Unlock is under the span of that call, even
// if the call is over when the hook looks at it.
func TestHooksSeeTheCallersContext(t *testing.T) {
	for _, bounded := range []bool{false, true} {
		t.Run(fmt.Sprintf("ContextTimeoutEnabled=%v", bounded), func(t *testing.T) {
			tr := tracer{spans: make(map[string][]any)}
			rdb := redis.NewClient(&redis.Options{
				Addr: shared.Addr(), DisableIdentity: true, ContextTimeoutEnabled: bounded,
			})
			rdb.AddHook(&tr)
			c := newClient(t, rdb, nil)
			other := openClient(t, shared, nil)
			under := func(name string) context.Context { return context.WithValue(within(t), span{}, name) }
			saw := func(what, name string) {
				t.Helper()
				spans := tr.take(name)
				for _, s := range spans {
					if s != what {
						t.Errorf("%s: a request is under the span %v", what, s)
					}
				}
				if len(spans) == 0 {
					t.Errorf("%s: no request was seen", what)
				}
			}
			for i := range 20 {
				name := fmt.Sprint(t.Name(), i%3)
				if i == 10 { // one that must wait: a message that comes late is seen to under no span
					name = t.Name() + "waited for"
					l := must[*dlock.Lease](t)(other.Mutex(name).Lock(within(t)))
					time.AfterFunc(50*time.Millisecond, func() { _ = l.Unlock(context.Background()) })
				}
				m := c.Mutex(name)
				l := must[*dlock.Lease](t)(m.Lock(under("lock")))
				saw("lock", name)
				nested := must[*dlock.Lease](t)(m.Lock(l.Context(under("nested"))))
				saw("nested", name)
				must[any](t)(nil, nested.Unlock(under("leave")))
				saw("leave", name)
				must[any](t)(nil, l.Unlock(under("unlock")))
				saw("unlock", name)
			}
		})
	}
}

// TestCloseOnASilentServer closes a backend, of both kinds, on a server that has
// stopped. It returns soon, and says which holds may still be there.
func TestCloseOnASilentServer(t *testing.T) {
	t.Parallel()
	s := server.Start(t, server.Redis{})
	for how, connect := range map[string]func() backend.Backend{
		"Open": func() backend.Backend {
			u := must[*backend.URL](t)(backend.ParseURL("redis://" + s.Addr()))
			return must[backend.Backend](t)(open(within(t), backend.Config{URL: u, Logger: slog.New(slog.DiscardHandler)}))
		},
		"New": func() backend.Backend { return New(plainClient(t, s), nil) },
	} {
		b := connect()
		for i, name := range []string{"first", "second"} {
			must[*backend.Hold](t)(b.Acquire(within(t), backend.Request{
				Name: how + "/" + name, Mode: backend.Exclusive, TTL: 40 * time.Second,
				ID: backend.ID{Client: how, Seq: uint64(i + 1)},
			}))
		}
		must[any](t)(nil, s.Pause())
		err := closed(t, b, context.Background())
		is(t, err, backend.ErrUnavailable)
		for _, name := range []string{"first", "second"} {
			if !strings.Contains(fmt.Sprint(err), how+"/"+name) {
				t.Errorf("%s: %v, which does not name %s", how, err, name)
			}
		}
		must[any](t)(nil, s.Resume())
	}
}

// closed closes a backend, which must not take as long as a test may.
func closed(t *testing.T, b backend.Backend, ctx context.Context) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- b.Close(ctx) }()
	select {
	case err := <-done:
		return err
	case <-within(t).Done():
		t.Fatal("Close waits")
		return nil
	}
}

// TestCloseWaitsForNoAnswer closes a backend while a request for a lock is under way,
// and a subscription is being made, on a server that has fallen silent. Neither of them
// is worth waiting for: a client of one's own may allow them any time.
func TestCloseWaitsForNoAnswer(t *testing.T) {
	t.Parallel()
	p := must[*faultnet.Proxy](t)(faultnet.Listen(server.Start(t, server.Redis{}).Addr()))
	t.Cleanup(func() { _ = p.Close() })
	rdb := redis.NewClient(&redis.Options{Addr: p.Addr(), DisableIdentity: true, ReadTimeout: 2 * limit})
	t.Cleanup(func() { _ = rdb.Close() })
	b := New(rdb, &Options{PollOnly: true})
	r := backend.Request{Name: t.Name(), ID: backend.ID{Client: t.Name(), Seq: 1}, Mode: backend.Exclusive, TTL: limit}
	must[any](t)(nil, b.Release(within(t), must[*backend.Hold](t)(b.Acquire(within(t), r))))
	p.Blackhole(faultnet.ToClient)
	b.listener.pollOnly = false
	request, answer := make(chan error, 1), make(chan error, 1)
	ctx, end, _ := b.calls.Begin(context.Background())
	go func() { // it may take longer than the test
		defer end()
		_, err := b.transport.do(ctx, 2*limit, []any{"ping"}, durable)
		request <- err
	}()
	underWay(t, b.transport.(*pipeline), 1)
	go func() {
		r.ID.Seq++
		_, err := b.Acquire(within(t), r)
		answer <- err
	}()
	eventually(t, "both are under way", func() bool { return p.Stats().Accepted > 2 })
	_ = closed(t, b, expired())
	is(t, <-request, backend.ErrClosed)
	is(t, <-answer, backend.ErrClosed)
}

// TestNobodyIsCaptive has a server that was near fall silent: no reply comes, or no new
// connection in the place of one that has ended. Whoever asks for a lock that was free, or
// gives one back, goes when its context ends, whatever the client of one's own allows.
func TestNobodyIsCaptive(t *testing.T) {
	t.Parallel()
	for how, silence := range map[string]func(*faultnet.Proxy, *silentDialer){
		"reply": func(way *faultnet.Proxy, _ *silentDialer) { way.Blackhole(faultnet.ToClient) },
		"dial":  func(_ *faultnet.Proxy, d *silentDialer) { d.silence() },
	} {
		for what, call := range map[string]func(context.Context, *Backend, *backend.Hold) error{
			"Acquire": func(ctx context.Context, b *Backend, h *backend.Hold) error {
				r := h.Request
				r.Name, r.ID.Seq = r.Name+"/free", r.ID.Seq+1
				b.free.add(lockKey(r.Name))
				_, err := b.Acquire(ctx, r)
				return err
			},
			"Release": func(ctx context.Context, b *Backend, h *backend.Hold) error {
				stateOf(h).unwanted.Store(true)
				return b.Release(ctx, h)
			},
		} {
			t.Run(how+"/"+what, func(t *testing.T) {
				t.Parallel()
				way := proxied(t)
				d := silentDialer{to: way, silent: make(chan struct{}), asked: make(chan struct{}), ended: t.Context().Done()}
				rdb := redis.NewClient(&redis.Options{
					DisableIdentity: true, ContextTimeoutEnabled: true, MaxRetries: -1,
					Dialer: d.dial, DialTimeout: time.Hour, ReadTimeout: time.Hour,
				})
				t.Cleanup(func() { _ = rdb.Close() })
				b := New(rdb, &Options{PollOnly: true})
				t.Cleanup(func() { _ = b.Close(expired()) })
				h := must[*backend.Hold](t)(b.Acquire(within(t), backend.Request{
					Name: t.Name() + rand.Text(), ID: backend.ID{Client: t.Name()}, Mode: backend.Exclusive, TTL: time.Hour,
				}))
				rest(t, b.transport.(*pipeline))
				silence(way, &d)
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				done := make(chan error, 1)
				go func() { done <- call(ctx, b, h) }()
				underWay(t, b.transport.(*pipeline), 1)
				if how == "dial" {
					select {
					case <-d.asked:
					case <-within(t).Done():
						t.Fatal("nobody has dialled")
					}
				}
				cancel()
				select {
				case err := <-done:
					if err == nil {
						t.Error("nobody has answered")
					}
				case <-within(t).Done():
					t.Fatal("it is held")
				}
			})
		}
	}
}

// A silentDialer makes connections until there is silence: those that there are have ended
// then, and no other one comes about.
type silentDialer struct {
	to     *faultnet.Proxy
	ended  <-chan struct{} // closed when it fails
	silent chan struct{}   // closed when there is silence
	asked  chan struct{}   // closed when somebody has dialled since

	mu    sync.Mutex
	conns []net.Conn
	once  sync.Once
}

func (d *silentDialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	select {
	case <-d.silent:
		d.once.Do(func() { close(d.asked) })
		select {
		case <-ctx.Done():
		case <-d.ended:
		}
		return nil, errors.New("nobody answers")
	default:
	}
	conn, err := d.to.DialContext(ctx, network, addr)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conns = append(d.conns, conn)
	return conn, err
}

func (d *silentDialer) silence() {
	close(d.silent)
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, conn := range d.conns {
		_ = conn.Close()
	}
}
