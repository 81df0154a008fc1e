package integration

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	_ "github.com/dlock-go/dlock/backend/etcd"
	_ "github.com/dlock-go/dlock/backend/file"
	"github.com/dlock-go/dlock/backend/memory"
	_ "github.com/dlock-go/dlock/backend/pg"
	_ "github.com/dlock-go/dlock/backend/quorum"
	_ "github.com/dlock-go/dlock/backend/redis"
	_ "github.com/dlock-go/dlock/backend/zk"
	"github.com/dlock-go/dlock/conformance"
	"github.com/dlock-go/dlock/internal/faultnet"
	"github.com/dlock-go/dlock/internal/server"
	dlockotel "github.com/dlock-go/dlock/otel"
)

var (
	calls = flag.Int("calls", 100_000, "number of calls of TestModel, on all backends together")
	seed  = flag.Uint64("seed", 0, "seed of TestModel; 0: another one each time")
)

// TestModel has random calls of many clients on a few locks while connections fail,
// answers come late and clients are closed. What the metrics and spans say must be what
// the callers have seen.
func TestModel(t *testing.T) {
	chooseSeed(t)
	for _, on := range []struct {
		name  string
		share int           // of the calls, in percent
		wait  time.Duration // the most that a call waits
		start func(*testing.T) (open func() backend.Backend, disturb func(*rand.Rand))
	}{
		{"memory", 69, 3 * time.Millisecond, startMemory},
		{"file", 18, 6 * time.Millisecond, startFiles},
		{"redis", 9, 30 * time.Millisecond, startRedis},
		{"redlock", 1, 60 * time.Millisecond, startRedlock},
		{"etcd", 1, 60 * time.Millisecond, startBehindProxy(server.Etcd{}, "etcd://%s")},
		{"zk", 1, 60 * time.Millisecond, startBehindProxy(server.ZooKeeper{}, "zk://%s?ensemble=false&session=2s")},
		{"pg", 1, 60 * time.Millisecond, startBehindProxy(server.Postgres{}, "postgres://postgres@%s/postgres?sslmode=disable")},
	} {
		t.Run(on.name, func(t *testing.T) {
			open, disturb := on.start(t)
			w := newWorkload(t, open, on.wait, *calls*on.share/100)
			w.makeHooks(dlockotel.WithMeterProvider(w.provider))
			w.run(disturb)
			w.check()
		})
	}
}

func chooseSeed(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("seed %d", *seed)
}

func startMemory(*testing.T) (func() backend.Backend, func(*rand.Rand)) {
	s := memory.NewServer()
	return func() backend.Backend { return memory.New(s) }, func(r *rand.Rand) { s.Evict(anyName(r)) }
}

func startFiles(t *testing.T) (func() backend.Backend, func(*rand.Rand)) {
	url := "file://" + t.TempDir()
	return func() backend.Backend { return openBackend(t, url) }, func(*rand.Rand) {}
}

func startRedis(t *testing.T) (func() backend.Backend, func(*rand.Rand)) {
	s := server.Start(t, server.Redis{})
	proxy := listen(t, s)
	breakHolders := breaker(t, "redis://"+s.Addr())
	return func() backend.Backend { return openBackend(t, "redis://"+proxy.Addr()) }, func(r *rand.Rand) {
		if r.IntN(20) == 0 {
			proxy.Reset()
			return
		}
		breakHolders(anyName(r))
	}
}

// startRedlock starts three servers, which vote at once: they have forgotten nothing. The
// connections to one of them, or to all, are reset now and then.
func startRedlock(t *testing.T) (func() backend.Backend, func(*rand.Rand)) {
	var proxies []*faultnet.Proxy
	var direct, hosts []string
	for _, s := range server.StartAll(t, server.Copies(3, server.Redis{})...) {
		c := redis.NewClient(&redis.Options{Addr: s.Addr(), DisableIdentity: true})
		must(t, errors.Join(c.HSet(t.Context(), "dlock:boot", "since", 1, "run", "-").Err(), c.Close()))
		proxy := listen(t, s)
		proxies, direct, hosts = append(proxies, proxy), append(direct, s.Addr()), append(hosts, proxy.Addr())
	}
	breakHolders := breaker(t, "redlock://"+strings.Join(direct, ","))
	return func() backend.Backend { return openBackend(t, "redlock://"+strings.Join(hosts, ",")) }, func(r *rand.Rand) {
		switch r.IntN(60) {
		case 0:
			for _, proxy := range proxies {
				proxy.Reset()
			}
		case 1, 2, 3:
			proxies[r.IntN(len(proxies))].Reset()
		default:
			breakHolders(anyName(r))
		}
	}
}

// listen returns a proxy before s.
func listen(t *testing.T, s *server.Server) *faultnet.Proxy {
	proxy, err := faultnet.Listen(s.Addr())
	must(t, err)
	t.Cleanup(func() { _ = proxy.Close() })
	return proxy
}

// breaker returns a function that takes a lock away from whoever holds it.
func breaker(t *testing.T, url string) func(name string) {
	admin, err := dlock.Open(t.Context(), url, nil)
	must(t, err)
	t.Cleanup(func() { must(t, admin.Close(context.Background())) })
	return func(name string) {
		state, err := admin.Inspect(context.Background(), name)
		for _, h := range state.Holders {
			err = errors.Join(err, admin.Break(context.Background(), name, h.Token))
		}
		if err != nil && !errors.Is(err, dlock.ErrNotHeld) && !errors.Is(err, dlock.ErrUnavailable) { // a busy server breaks nothing
			t.Error(err)
		}
	}
}

// startBehindProxy starts a server. Its connections are reset now and then.
func startBehindProxy(kind server.Kind, url string) func(*testing.T) (func() backend.Backend, func(*rand.Rand)) {
	return func(t *testing.T) (func() backend.Backend, func(*rand.Rand)) {
		proxy := listen(t, server.Start(t, kind))
		return func() backend.Backend { return openBackend(t, fmt.Sprintf(url, proxy.Addr())) }, func(r *rand.Rand) {
			if r.IntN(50) == 0 {
				proxy.Reset()
			}
		}
	}
}

// openBackend opens a backend. It tries for a while, because connections are reset.
func openBackend(t *testing.T, url string) backend.Backend {
	u, err := backend.ParseURL(url)
	if err != nil {
		t.Error(err)
		return nil
	}
	var b backend.Backend
	backend.Retry(t.Context(), func(ctx context.Context) error {
		b, err = backend.Open(ctx, backend.Config{URL: u, TTL: modelTTL})
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return b
}

const modelTTL = 300 * time.Millisecond

var modelNames = []string{"a", "b", "c"}

func anyName(r *rand.Rand) string { return modelNames[r.IntN(len(modelNames))] }

// A workload is random work, and what its callers have seen of it.
type workload struct {
	t        *testing.T
	open     func() backend.Backend
	wait     time.Duration // the most that a call waits
	hooks    dlock.Hooks
	provider *metric.MeterProvider
	reader   *metric.ManualReader // of the provider
	spans    *spanCount
	start    time.Time
	left     atomic.Int64 // calls to be made
	failed   atomic.Bool  // no backend can be opened
	seeds    atomic.Uint64

	middle   func() // called once so many calls are left; may be nil
	middleAt int64

	mu       sync.Mutex
	outcomes map[string]int // of calls
	ends     map[string]int // of leases
}

func newWorkload(t *testing.T, open func() backend.Backend, wait time.Duration, calls int) *workload {
	w := &workload{t: t, start: time.Now(), open: open, wait: wait, outcomes: map[string]int{}, ends: map[string]int{}}
	w.reader, w.spans = metric.NewManualReader(), newSpanCount()
	w.provider = metric.NewMeterProvider(metric.WithReader(w.reader))
	w.left.Store(int64(calls))
	return w
}

// makeHooks makes the hooks, with o.
func (w *workload) makeHooks(o ...dlockotel.Option) {
	w.hooks = dlockotel.Hooks(append(o, dlockotel.WithTracerProvider(trace.NewTracerProvider(trace.WithSpanProcessor(w.spans))))...)
}

// Workers at a time: each makes one call at a time.
const clientsAtOnce, workersEach = 3, 6

// random returns numbers of a seed of their own.
func (w *workload) random() *rand.Rand { return rand.New(rand.NewPCG(*seed, w.seeds.Add(1))) }

// run has clients come and go, each with several workers, until all calls are made.
func (w *workload) run(disturb func(*rand.Rand)) {
	var clients, disturber sync.WaitGroup
	for range clientsAtOnce {
		clients.Go(func() {
			for r := w.random(); !w.isDone(); {
				w.clientLife(r)
			}
		})
	}
	disturber.Go(func() {
		for r := w.random(); !w.isDone(); {
			disturb(r)
			sleep(r, 2*time.Millisecond)
		}
	})
	clients.Wait()
	disturber.Wait()
}

// isDone reports whether all calls are made, and some had each outcome: on a busy machine
// it takes more calls for that. It gives up in the end.
func (w *workload) isDone() bool {
	if w.left.Load() > 0 && !w.failed.Load() {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.outcomes) == len(allOutcomes) || w.failed.Load() || time.Since(w.start) > 5*time.Minute
}

var allOutcomes = []string{"acquired", "held", "canceled", "failed"}

// clientLife opens a client, has workers use it while its calls fail and take long, and
// closes it, often in the middle of their work.
func (w *workload) clientLife(r *rand.Rand) {
	b := w.open()
	if b == nil {
		w.failed.Store(true)
		return
	}
	faults := conformance.NewFaults(b)
	c, err := dlock.New(faults.Backend(), &dlock.Options{TTL: modelTTL, Hooks: w.hooks})
	if err != nil {
		w.t.Error(err)
		return
	}
	var workers sync.WaitGroup
	var dropped sync.Map // leases that nobody unlocks
	for range workersEach {
		workers.Go(func() {
			r := w.random()
			for range 300 {
				if w.isDone() || w.visit(r, c, &dropped) && r.IntN(5) > 0 {
					return
				}
			}
		})
	}
	workers.Go(func() {
		sleep(r, 30*time.Millisecond)
		switch r.IntN(4) {
		case 0:
			heal := faults.Cut()
			sleep(r, 5*time.Millisecond)
			heal()
		case 1:
			faults.Delay(time.Duration(r.IntN(int(5 * time.Millisecond))))
			sleep(r, 20*time.Millisecond)
			faults.Delay(0)
		case 2:
			faults.DropReply()
		case 3:
			faults.FailNext(backend.Fail(backend.ErrUnavailable, errors.New("as the test wants it")))
		}
		sleep(r, 50*time.Millisecond)
		if r.IntN(2) == 0 {
			_ = c.Close(context.Background())
		}
	})
	workers.Wait()
	_ = c.Close(context.Background())
	dropped.Range(func(lease, _ any) bool {
		w.countEnd(lease.(*dlock.Lease).Err())
		return true
	})
}

// visit makes a call, and one within its lease at times. It reports whether c is closed.
func (w *workload) visit(r *rand.Rand, c *dlock.Client, dropped *sync.Map) (isClosed bool) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(r.Int64N(int64(w.wait))))
	defer cancel()
	if r.IntN(5) == 0 {
		time.AfterFunc(time.Duration(r.IntN(int(100*time.Microsecond))), cancel)
	}
	lease, err := w.acquire(ctx, r, c)
	if err != nil {
		return errors.Is(err, dlock.ErrClosed)
	}
	if r.IntN(4) == 0 {
		if inner, err := w.acquire(lease.Context(ctx), r, c); err == nil {
			defer w.leave(r, inner, dropped)
		}
	}
	if r.IntN(10) == 0 {
		_ = lease.Downgrade(ctx)
	}
	if r.IntN(10) == 0 {
		sleep(r, time.Millisecond)
	}
	w.leave(r, lease, dropped)
	return false
}

// acquire makes one call, and counts how it ends.
func (w *workload) acquire(ctx context.Context, r *rand.Rand, c *dlock.Client) (*dlock.Lease, error) {
	if w.left.Add(-1) == w.middleAt && w.middle != nil {
		w.middle()
	}
	name := anyName(r)
	m := c.RWMutex(name)
	var lease *dlock.Lease
	var err error
	switch r.IntN(8) {
	case 0:
		lease, err = m.TryLock(ctx)
	case 1:
		lease, err = m.TryRLock(ctx)
	case 2, 3:
		lease, err = m.RLock(ctx)
	case 4:
		lease, err = c.Multi(modelNames[:2]).Lock(ctx)
	case 5:
		lease, err = c.Mutex(name, dlock.WithMaxWait(time.Millisecond)).Lock(ctx)
	default:
		lease, err = m.Lock(ctx)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outcomes[outcome(ctx, err)]++
	return lease, err
}

// outcome is what the documentation of dlock.Outcome says of a call that returned err.
func outcome(ctx context.Context, err error) string {
	var e *dlock.Error
	switch {
	case err == nil:
		return "acquired"
	case errors.As(err, &e) && e.Kind == nil, ctx.Err() == context.Canceled && errors.Is(err, context.Canceled):
		return string(dlock.OutcomeCanceled)
	case errors.Is(err, dlock.ErrHeld):
		return string(dlock.OutcomeHeld)
	}
	return string(dlock.OutcomeFailed)
}

// leave unlocks the lease, or drops it: then it ends with its client.
func (w *workload) leave(r *rand.Rand, lease *dlock.Lease, dropped *sync.Map) {
	if r.IntN(200) == 0 {
		dropped.Store(lease, nil)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	err := lease.Unlock(ctx)
	if errors.Is(err, dlock.ErrUnlocked) {
		w.t.Errorf("unlocked once, but %v", err)
	}
	w.countEnd(err)
}

// countEnd counts the end of a lease of which its holder was told err.
func (w *workload) countEnd(err error) {
	end := "released"
	switch {
	case errors.Is(err, dlock.ErrLost):
		end = "lost"
	case errors.Is(err, dlock.ErrClosed):
		end = "closed"
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ends[end]++
}

// check compares the metrics and spans with what the callers have seen.
func (w *workload) check() {
	t := w.t
	w.checkGauges()
	if got := sums(t, w.reader, "dlock.acquire.duration", dlockotel.OutcomeKey); !maps.Equal(got, w.outcomes) {
		t.Errorf("the callers saw %v, the metrics say %v", w.outcomes, got)
	}
	ends := sums(t, w.reader, "dlock.lease.duration", dlockotel.EndKey)
	late := ends["lost"] - w.ends["lost"] // Close found out, and the holder knows of Close alone
	if ends["released"] != w.ends["released"] || late < 0 || ends["closed"]+late != w.ends["closed"] {
		t.Errorf("the holders saw %v, the metrics say %v", w.ends, ends)
	}
	if got := sums(t, w.reader, "dlock.lease.losses", "")[""]; got != ends["lost"] {
		t.Errorf("%d leases were lost, the metrics say %d", ends["lost"], got)
	}
	failed := 0
	for operation, n := range sums(t, w.reader, "dlock.errors", dlockotel.OpKey) {
		if operation != "renew" && operation != "unlock" {
			failed += n
		}
	}
	if failed != w.outcomes["failed"] {
		t.Errorf("%d calls failed, the metrics say %d", w.outcomes["failed"], failed)
	}
	w.checkSpans()
	for _, what := range allOutcomes {
		if w.outcomes[what] == 0 {
			t.Errorf("no call was %s", what)
		}
	}
}

// checkGauges waits until the gauges are at zero.
func (w *workload) checkGauges() {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if w.isBalanced() {
			break // the hook for a loss is called by the client, soon
		}
	}
	w.t.Logf("calls %v, leases %v", w.outcomes, w.ends)
	for _, gauge := range []string{"dlock.acquire.waiters", "dlock.lease.active"} {
		modes := sums(w.t, w.reader, gauge, dlockotel.ModeKey)
		for _, mode := range []string{"exclusive", "shared"} {
			if n, ok := modes[mode]; !ok || n != 0 {
				w.t.Errorf("%s is %d for %s when all is over; there: %v", gauge, n, mode, ok)
			}
		}
	}
}

func (w *workload) checkSpans() {
	calls := 0
	for _, n := range w.outcomes {
		calls += n
	}
	w.spans.check(w.t, "dlock acquire", calls)
	w.spans.check(w.t, "dlock hold", w.outcomes["acquired"])
}

// isBalanced reports whether all that has begun has ended.
func (w *workload) isBalanced() bool {
	return sums(w.t, w.reader, "dlock.lease.active", "")[""] == 0 && sums(w.t, w.reader, "dlock.acquire.waiters", "")[""] == 0
}

// A spanCount counts spans by name.
type spanCount struct {
	mu             sync.Mutex
	started, ended map[string]int
}

func newSpanCount() *spanCount {
	return &spanCount{started: map[string]int{}, ended: map[string]int{}}
}

// OnStart implements trace.SpanProcessor.
func (c *spanCount) OnStart(_ context.Context, s trace.ReadWriteSpan) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.started[s.Name()]++
}

// OnEnd implements trace.SpanProcessor.
func (c *spanCount) OnEnd(s trace.ReadOnlySpan) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended[s.Name()]++
}

// Shutdown implements trace.SpanProcessor.
func (c *spanCount) Shutdown(context.Context) error { return nil }

// ForceFlush implements trace.SpanProcessor.
func (c *spanCount) ForceFlush(context.Context) error { return nil }

func (c *spanCount) check(t *testing.T, name string, want int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.started[name] != want || c.ended[name] != want {
		t.Errorf("of %d spans %s %d were started and %d ended", want, name, c.started[name], c.ended[name])
	}
}

func sleep(r *rand.Rand, limit time.Duration) { time.Sleep(time.Duration(r.Int64N(int64(limit)))) }
