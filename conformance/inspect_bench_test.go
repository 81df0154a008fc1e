package conformance_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/faultnet"
	"github.com/dlock-go/dlock/internal/server"
)

const (
	manyWaiters = 10_000
	manyNames   = 100_000
	lasting     = 10 * time.Minute // longer than a benchmark: nobody renews what it holds
)

// An inspected service is one with very many locks, of which nothing is given back: it is
// ended with them.
type inspected struct {
	url     string           // with %s for the addresses
	addrs   []string         // of its servers
	framing faultnet.Framing // to count requests by; nil: not counted
	clients int              // who wait with a connection each, and no more of them; 0: one for all who wait
	noNames bool
}

// inspectable are the targets that BenchmarkInspect knows.
var inspectable = map[string]func(testing.TB) inspected{
	"redis": func(t testing.TB) inspected {
		return inspected{url: "redis://%s", addrs: addrs(server.StartAll(t, server.Redis{})), framing: faultnet.RESP}
	},
	"redis-cluster": func(t testing.TB) inspected {
		return inspected{url: "redis+cluster://%s", addrs: addrs(server.StartCluster(t, server.Redis{}, untouched).Masters)}
	},
	"redlock": func(t testing.TB) inspected {
		servers := server.StartAll(t, server.Copies(3, server.Redis{})...)
		for _, s := range servers { // it votes at once: it has forgotten nothing
			c := redis.NewClient(&redis.Options{Addr: s.Addr(), DisableIdentity: true})
			must(t, c.HSet(t.Context(), "dlock:boot", "since", 1, "run", "-").Err())
			must(t, c.Close())
		}
		return inspected{url: "redlock://%s?dlock.maxttl=" + lasting.String(), addrs: addrs(servers), framing: faultnet.RESP}
	},
	"etcd": func(t testing.TB) inspected {
		return inspected{url: "etcd://%s", addrs: addrs(server.StartAll(t, server.Etcd{Args: []string{"--unsafe-no-fsync"}})), framing: faultnet.HTTP2}
	},
	"zk": func(t testing.TB) inspected {
		s := server.StartAll(t, server.ZooKeeper{Config: []string{"maxSessionTimeout=600000"}})
		return inspected{url: "zk://%s/dlock?ensemble=false&session=" + lasting.String(), addrs: addrs(s), framing: faultnet.ZooKeeper}
	},
	"pg": func(t testing.TB) inspected {
		s := server.StartAll(t, server.Postgres{Settings: []string{"max_connections=300"}})
		return inspected{url: "postgres://postgres@%s/postgres?sslmode=disable", addrs: addrs(s), framing: faultnet.Postgres, clients: 100, noNames: true}
	},
}

// open returns a client, which is left when the benchmark ends.
func (in inspected) open(b *testing.B, addrs []string) backend.Backend {
	u, err := backend.ParseURL(fmt.Sprintf(in.url, strings.Join(addrs, ",")))
	must(b, err)
	c, err := backend.Open(b.Context(), backend.Config{URL: u, TTL: lasting})
	must(b, err)
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.Close(ctx) // the server ends next
	})
	return c
}

// askers are two clients that ask: one whose requests are counted, which takes some of the
// processor's time, and one that is measured.
func (in inspected) askers(b *testing.B) (counted, measured backend.Inspector, requests func() int64) {
	measured = in.open(b, in.addrs).(backend.Inspector)
	if in.framing == nil {
		return measured, measured, func() int64 { return 0 }
	}
	var proxies []*faultnet.Proxy
	var through []string
	for _, addr := range in.addrs {
		p, err := faultnet.Listen(addr)
		must(b, err)
		b.Cleanup(func() { _ = p.Close() })
		p.SetFraming(in.framing)
		proxies, through = append(proxies, p), append(through, p.Addr())
	}
	return in.open(b, through).(backend.Inspector), measured, func() (n int64) {
		for _, p := range proxies {
			n += p.Stats().Requests
		}
		return n
	}
}

// BenchmarkInspect asks for a lock with 10,000 waiters, each of another client, on Postgres
// with 100, which are connections there, and for 100,000 names. It reports how long that
// takes, how many requests and how much memory, and how long another client takes for a lock
// of its own meanwhile and at rest, in turn: run it with -benchtime=1x.
func BenchmarkInspect(b *testing.B) {
	for _, name := range chosen(b) {
		start := inspectable[name]
		if start == nil {
			continue
		}
		b.Run(name+"/waiters", func(b *testing.B) { benchInspect(b, start(b)) })
		b.Run(name+"/names", func(b *testing.B) {
			if in := start(b); in.noNames {
				b.Skip("the server knows no names")
			} else {
				benchNames(b, in)
			}
		})
	}
}

// request is one of another client for each number.
func request(name string, n int) backend.Request {
	return backend.Request{Name: name, ID: backend.ID{Client: fmt.Sprintf("%032x", n), Seq: 1}, Label: "bench", Mode: backend.Exclusive,
		TTL: lasting, Wait: true, Observer: unheard{}}
}

type unheard struct{}

func (unheard) Queued()    {}
func (unheard) Lost(error) {}
func (unheard) Wanted()    {}

// joined hears that its request is in the queue.
type joined struct {
	unheard
	queued func()
}

func (j joined) Queued() { j.queued() }

// joining is how many may be about to join the queue. This process has no time to look at the
// answers to ten thousand at once, and a quorum would take its nodes for silent.
const joining = 64

func benchInspect(b *testing.B, in inspected) {
	const name = "waiters"
	counted, measured, requests := in.askers(b)
	holds := []backend.Backend{in.open(b, in.addrs)}
	for len(holds) < in.clients {
		holds = append(holds, in.open(b, in.addrs))
	}
	_, err := in.open(b, in.addrs).Acquire(b.Context(), request(name, 0))
	must(b, err)
	ctx, cancel := context.WithCancel(b.Context())
	shown := manyWaiters
	if in.clients > 0 {
		shown = in.clients
	}
	var waiting sync.WaitGroup
	places := make(chan struct{}, joining)
	for n := range shown {
		places <- struct{}{}
		leave := sync.OnceFunc(func() { <-places })
		r := request(name, n+1)
		r.Observer = joined{queued: leave}
		waiting.Go(func() {
			defer leave()
			_, _ = holds[n%len(holds)].Acquire(ctx, r)
		})
	}
	inspect := func(asks backend.Inspector) int {
		s, err := asks.Inspect(b.Context(), name)
		must(b, err)
		return len(s.Waiters)
	}
	for inspect(measured) < shown {
		time.Sleep(time.Second) // a look takes the server's time from those who join
	}
	measureBeside(b, in.open(b, in.addrs), counted, measured, requests, func(asks backend.Inspector, _ func()) {
		if n := inspect(asks); n < shown-shown/10 { // who waits anew is in no queue of Postgres for a moment
			b.Fatalf("%d waiters", n)
		}
	})
	cancel()
	waiting.Wait()
}

func benchNames(b *testing.B, in inspected) {
	const prefix = "names/"
	holds := in.open(b, in.addrs)
	var holding sync.WaitGroup
	for part := range 64 {
		holding.Go(func() {
			for n := part; n < manyNames; n += 64 {
				if _, err := holds.Acquire(b.Context(), request(fmt.Sprint(prefix, n), n)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	holding.Wait()
	counted, measured, requests := in.askers(b)
	measureBeside(b, in.open(b, in.addrs), counted, measured, requests, func(asks backend.Inspector, step func()) {
		n := 0
		for _, err := range asks.Names(b.Context(), prefix) {
			must(b, err)
			n++
			step()
		}
		if n < manyNames {
			b.Fatalf("%d names", n)
		}
	})
}

// Looks at the other client at rest are compared with looks meanwhile so often, as long as
// that takes no longer than this.
const (
	maxRounds = 30
	measuring = 90 * time.Second
)

// warming is how long the other client works before it is measured: memory that a process
// has not had before costs time, and would be taken for that of the first look.
const warming = 30 * time.Second

// maxGarbage is how much memory may be used until garbage is collected: who holds and waits
// is part of this process, and to go through all of them would be taken for the server's work.
const maxGarbage = 2 << 30

// turn is for how long ask may go on until the other client is looked at at rest: how fast a
// machine is changes within minutes.
const turn = 2 * time.Second

// measureBeside runs ask, while another client takes and releases a lock, in turn with as
// long a time at rest. A long ask calls step between the parts of its answer.
func measureBeside(b *testing.B, other backend.Backend, counted, measured backend.Inspector, requests func() int64, ask func(asks backend.Inspector, step func())) {
	sent := requests()
	ask(counted, func() {})
	sent = requests() - sent
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	allocated, began := mem.TotalAlloc, time.Now()
	ask(measured, func() {})
	rounds := min(max(int(measuring/2/time.Since(began)), 1), maxRounds) * b.N
	runtime.ReadMemStats(&mem)
	allocated = mem.TotalAlloc - allocated
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(maxGarbage))
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	warm := make(chan struct{})
	time.AfterFunc(warming, func() { close(warm) })
	cycles(b, other, warm)
	var rest, beside []time.Duration
	var asking time.Duration
	var end chan struct{}
	var took chan []time.Duration
	begin := func() {
		end, took, began = make(chan struct{}), make(chan []time.Duration), time.Now()
		go func() { took <- cycles(b, other, end) }()
	}
	finish := func() {
		lasted := time.Since(began)
		close(end)
		beside, asking = append(beside, <-took...), asking+lasted
		quiet := make(chan struct{})
		time.AfterFunc(max(lasted, time.Second), func() { close(quiet) })
		rest = append(rest, cycles(b, other, quiet)...)
	}
	for range rounds {
		begin()
		ask(measured, func() {
			if time.Since(began) > turn {
				finish()
				begin()
			}
		})
		finish()
	}
	b.StopTimer()
	mean := func(took []time.Duration) float64 {
		var sum time.Duration
		for _, d := range took {
			sum += d
		}
		return float64(sum.Microseconds()) / float64(len(took))
	}
	median := func(took []time.Duration) float64 {
		slices.Sort(took)
		return float64(took[len(took)/2].Microseconds())
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(asking.Seconds()/float64(rounds), "s/ask")
	b.ReportMetric(float64(sent), "requests/ask")
	b.ReportMetric(float64(allocated)/1e6, "MB/ask")
	b.ReportMetric(median(rest), "µs-p50-rest")
	b.ReportMetric(median(beside), "µs-p50-beside")
	b.ReportMetric((mean(beside)/mean(rest)-1)*100, "%-slower-mean")
	b.ReportMetric((median(beside)/median(rest)-1)*100, "%-slower-p50")
}

// cycles takes and releases a lock until end is closed, and returns how long each took.
func cycles(b *testing.B, other backend.Backend, end <-chan struct{}) (took []time.Duration) {
	name := fmt.Sprint("other-", rand.Uint64())
	for n := 0; ; n++ {
		select {
		case <-end:
			return took
		default:
		}
		start := time.Now()
		h, err := other.Acquire(context.Background(), request(name, n))
		if err == nil {
			err = other.Release(context.Background(), h)
		}
		if err != nil {
			b.Error(err)
			return took
		}
		took = append(took, time.Since(start))
	}
}
