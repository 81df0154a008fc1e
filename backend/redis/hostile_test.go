package redis

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/server"
)

// A stranger may publish, hear what is told to clients, and knows everything but the
// lock's keys.
type stranger struct {
	t        *testing.T
	client   *redis.Client
	channels []string
	genuine  []*redis.Message // that it has heard
	rnd      *rand.Rand
}

// message is the i-th of many: forged, or a genuine one sent again.
func (s *stranger) message(i int, name string) (channel, text string) {
	pick := s.rnd.IntN
	channel = s.channels[pick(len(s.channels))]
	of := strings.TrimPrefix(s.channels[pick(len(s.channels))], channelPrefix)
	id := fmt.Sprintf("w10000:%s:%d", of, 1+pick(40))
	if entry := pick(3); entry > 0 {
		id += fmt.Sprintf("+%d", entry)
	}
	us := time.Now().UnixMicro()
	switch i % 8 {
	case 0:
		return channel, fmt.Sprintf("%s 8000000000000000 %d %d 0 %s", id, us, us/1000+86400000, mainKey(name))
	case 1:
		return channel, fmt.Sprintf("%s.%011d %d %d %d 0 %s", id, i, us, us, us/1000+5000, mainKey(name))
	case 2:
		return channel, fmt.Sprintf("%s.%011d %d %d %d 0 %s%d", id, i, us, us, us/1000+5000, mainKey(name), i)
	case 3:
		return channel, fmt.Sprintf("poll %s %040x", id, i)
	case 4:
		return channel, fmt.Sprintf("contended %s %040x", id, i)
	case 5:
		return channel, strings.Repeat("x", i%1000) + " 1 1 1 1 dlock:{x}"
	default:
		m := s.genuine[pick(len(s.genuine))]
		if i%8 == 6 {
			channel = m.Channel
		}
		return channel, m.Payload
	}
}

// TestHostilePeer has somebody send clients very many messages: nothing of it is believed,
// and it costs them neither goroutines, nor memory, nor requests. No other test runs
// beside it: goroutines are counted.
func TestHostilePeer(t *testing.T) {
	const messages = 40_000
	ctx := within(t)
	s := server.Start(t, server.Redis{})
	o := &dlock.Options{TTL: 10 * time.Second}
	a, b := openClient(t, s, o), openClient(t, s, o)
	evil := &stranger{t: t, client: plainClient(t, s), rnd: rand.New(rand.NewPCG(1, 2))}
	evil.overhear(ctx, func() {
		for range 20 { // a queue, hand-overs, releases
			first := must[*dlock.Lease](t)(a.Mutex(t.Name()).Lock(ctx))
			second := make(chan *dlock.Lease)
			go func() { second <- must[*dlock.Lease](t)(b.Mutex(t.Name()).Lock(ctx)) }()
			eventually(t, "it waits", func() bool { return evil.client.ZCard(ctx, mainKey(t.Name())+":q").Val() == 1 })
			must[any](t)(nil, first.Unlock(ctx))
			must[any](t)(nil, (<-second).Unlock(ctx))
		}
	})
	held := must[*dlock.Lease](t)(a.Mutex(t.Name()).Lock(ctx))
	got := make(chan *dlock.Lease, 1)
	go func() {
		l, err := b.Mutex(t.Name()).Lock(ctx)
		if err != nil {
			t.Error(err)
		}
		got <- l
	}()
	eventually(t, "it waits", func() bool { return evil.client.ZCard(ctx, mainKey(t.Name())+":q").Val() == 1 })

	scripts, memory, peak := scriptsOf(t, s), heapInUse(), 0
	goroutines := runtime.NumGoroutine()
	for i := 0; i < messages; {
		pipe := evil.client.Pipeline()
		for range 1000 {
			channel, text := evil.message(i, t.Name())
			pipe.Publish(ctx, channel, text)
			i++
		}
		must[[]redis.Cmder](t)(pipe.Exec(ctx))
		peak = max(peak, runtime.NumGoroutine())
	}
	evil.finish(ctx, b)
	scripts, memory = scriptsOf(t, s)-scripts, heapInUse()-memory
	t.Logf("%d goroutines, %d at most; %d scripts; %d KiB", goroutines, peak, scripts, memory>>10)
	if peak > goroutines+1000 {
		t.Errorf("%d goroutines, %d before", peak, goroutines)
	}
	if scripts > 200 {
		t.Errorf("%d scripts", scripts)
	}
	if memory > 8<<20 {
		t.Errorf("%d KiB more", memory>>10)
	}
	select {
	case l := <-got:
		t.Fatalf("believed, token %d", l.Token())
	default:
	}
	must[any](t)(nil, held.Err())
	must[any](t)(nil, held.Unlock(ctx))
	next := <-got
	if d := next.Token() - held.Token(); d > uint64(limit.Microseconds()) {
		t.Errorf("token %d after %d", next.Token(), held.Token())
	}
	must[any](t)(nil, next.Unlock(ctx))
}

// overhear listens to what clients are told while they work.
func (s *stranger) overhear(ctx context.Context, work func()) {
	s.t.Helper()
	ps := s.client.PSubscribe(ctx, channelPrefix+"*")
	defer ps.Close()
	must[any](s.t)(ps.ReceiveTimeout(ctx, limit))
	work()
	s.channels = must[[]string](s.t)(s.client.PubSubChannels(ctx, channelPrefix+"*").Result())
	must[int64](s.t)(s.client.Publish(ctx, channelPrefix+"end", "end").Result())
	for {
		m, ok := must[any](s.t)(ps.ReceiveTimeout(ctx, limit)).(*redis.Message)
		if ok && m.Payload == "end" {
			return
		}
		if ok {
			s.genuine = append(s.genuine, m)
		}
	}
}

// finish waits until a client has taken in all messages: a hand-over comes behind them.
func (s *stranger) finish(ctx context.Context, c *dlock.Client) {
	s.t.Helper()
	other := openClientOn(s.t, s.client.Options().Addr)
	name := s.t.Name() + "/finish"
	l := must[*dlock.Lease](s.t)(other.Mutex(name).Lock(ctx))
	got := make(chan *dlock.Lease)
	go func() { got <- must[*dlock.Lease](s.t)(c.Mutex(name).Lock(ctx)) }()
	eventually(s.t, "it waits", func() bool { return s.client.ZCard(ctx, mainKey(name)+":q").Val() == 1 })
	must[any](s.t)(nil, l.Unlock(ctx))
	must[any](s.t)(nil, (<-got).Unlock(ctx))
}

func openClientOn(t *testing.T, addr string) *dlock.Client {
	t.Helper()
	return openURL(t, "redis://"+addr, nil)
}

// heapInUse is how much memory is in use.
func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
