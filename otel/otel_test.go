package dlockotel_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
	"weak"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend/memory"
	dlockotel "github.com/dlock-go/dlock/otel"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	apimetric "go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// A probe receives what the hooks of a test say.
type probe struct {
	t      *testing.T
	reader *metric.ManualReader
	spans  *tracetest.InMemoryExporter
	hooks  dlock.Hooks
	server *memory.Server

	options []dlockotel.Option // with which hooks were made
}

func newProbe(t *testing.T, o ...dlockotel.Option) *probe {
	p := &probe{t: t, reader: metric.NewManualReader(), spans: tracetest.NewInMemoryExporter(), server: memory.NewServer()}
	o = append(o,
		dlockotel.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(p.reader))),
		dlockotel.WithTracerProvider(trace.NewTracerProvider(trace.WithSyncer(p.spans))))
	p.options = o
	p.hooks = dlockotel.Hooks(o...)
	return p
}

// open opens a client of the server at url that the test closes.
func (p *probe) open(url, prefix string) *dlock.Client {
	p.t.Helper()
	c, err := dlock.Open(p.t.Context(), url, &dlock.Options{Prefix: prefix, Hooks: p.hooks})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// client opens a client that the test closes.
func (p *probe) client(ttl time.Duration) (*dlock.Client, *memory.Backend) {
	p.t.Helper()
	b := memory.New(p.server)
	c, err := dlock.New(b, &dlock.Options{TTL: ttl, Hooks: p.hooks})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c, b
}

func (p *probe) lock(l dlock.Locker) *dlock.Lease {
	p.t.Helper()
	lease, err := l.Lock(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	return lease
}

func (p *probe) unlock(l *dlock.Lease) {
	p.t.Helper()
	if err := l.Unlock(p.t.Context()); err != nil {
		p.t.Fatal(err)
	}
}

// metrics returns the value of each time series, for histograms the number of values,
// by metric and attributes.
func (p *probe) metrics() map[string]float64 {
	p.t.Helper()
	var all metricdata.ResourceMetrics
	if err := p.reader.Collect(context.Background(), &all); err != nil {
		p.t.Fatal(err)
	}
	values := make(map[string]float64)
	note := func(name string, set attribute.Set, v float64) {
		for _, a := range set.ToSlice() {
			if !utf8.ValidString(a.Value.String()) {
				p.t.Errorf("%s: %s is %q", name, a.Key, a.Value.String())
			}
		}
		values[name+"{"+set.Encoded(attribute.DefaultEncoder())+"}"] = v
	}
	for _, scope := range all.ScopeMetrics {
		if scope.Scope.Name != dlockotel.Scope {
			p.t.Errorf("scope %q", scope.Scope.Name)
		}
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, d := range data.DataPoints {
					note(m.Name, d.Attributes, float64(d.Value))
				}
			case metricdata.Gauge[float64]:
				for _, d := range data.DataPoints {
					note(m.Name, d.Attributes, d.Value)
				}
			case metricdata.Histogram[float64]:
				for _, d := range data.DataPoints {
					note(m.Name, d.Attributes, float64(d.Count))
				}
			default:
				p.t.Errorf("%s is a %T", m.Name, data)
			}
		}
	}
	return values
}

// has fails the test unless the time series has that value, soon.
func (p *probe) has(series string, want float64) {
	p.t.Helper()
	var got map[string]float64
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if got = p.metrics(); got[series] == want {
			return
		}
	}
	p.t.Errorf("%s is %v, want %v; there are %s", series, got[series], want, strings.Join(slices.Sorted(maps.Keys(got)), "\n"))
}

func TestMetrics(t *testing.T) {
	p := newProbe(t)
	a, ba := p.client(300 * time.Millisecond)
	b, _ := p.client(10 * time.Second)

	lease := p.lock(a.Mutex("x"))
	p.has("dlock.lease.active{dlock.mode=exclusive}", 1)
	if _, err := b.Mutex("x").TryLock(t.Context()); err == nil {
		t.Fatal("held by two")
	}
	got := make(chan *dlock.Lease)
	wait := func(c *dlock.Client) {
		go func() {
			l, _ := c.Mutex("x").Lock(context.Background())
			got <- l
		}()
		p.has("dlock.acquire.waiters{dlock.mode=exclusive}", 1)
	}
	wait(a)
	p.unlock(lease)
	lease = <-got
	wait(b)
	p.unlock(lease)
	p.unlock(<-got)
	p.has("dlock.acquire.waiters{dlock.mode=exclusive}", 0)
	p.has("dlock.lease.active{dlock.mode=exclusive}", 0)
	p.has("dlock.hand_overs{dlock.hand_over=local,dlock.mode=exclusive}", 1)
	p.has("dlock.hand_overs{dlock.hand_over=remote,dlock.mode=exclusive}", 1)
	p.has("dlock.acquire.duration{dlock.mode=exclusive,dlock.outcome=acquired}", 3)
	p.has("dlock.acquire.duration{dlock.mode=exclusive,dlock.outcome=held}", 1)
	p.has("dlock.lease.duration{dlock.end=released,dlock.mode=exclusive}", 3)

	if _, err := a.Mutex("").Lock(t.Context()); err == nil {
		t.Fatal("a lock without a name")
	}
	p.has("dlock.acquire.duration{dlock.mode=exclusive,dlock.outcome=failed,error.type=invalid_name}", 1)
	p.has("dlock.errors{dlock.mode=exclusive,dlock.operation=lock,error.type=invalid_name}", 1)

	reader, err := a.RWMutex("y").RLock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p.has("dlock.lease.active{dlock.mode=shared}", 1)
	p.has("dlock.renewal.slack{dlock.mode=shared}", 2)
	if oldest := p.metrics()["dlock.lease.oldest{}"]; oldest < .15 || oldest > 10 {
		t.Errorf("the oldest lease is said to be %v s old", oldest)
	}
	ba.Cut()
	<-reader.Done()
	ba.Heal()
	p.has("dlock.lease.losses{dlock.cause=expired,dlock.mode=shared}", 1)
	p.has("dlock.lease.active{dlock.mode=shared}", 0)
	p.has("dlock.lease.oldest{}", 0)
	failures := 0.0
	for series, n := range p.metrics() {
		if strings.HasPrefix(series, "dlock.errors{") && strings.Contains(series, "dlock.operation=renew") {
			failures += n
		}
	}
	if failures == 0 {
		t.Error("no failed renewal was counted")
	}
	p.lock(a.Mutex("x"))
	_ = a.Close(t.Context())
	p.has("dlock.lease.duration{dlock.end=closed,dlock.mode=exclusive}", 1)
	p.has("dlock.lease.active{dlock.mode=exclusive}", 0)
}

func TestLockNamesAreNotInMetrics(t *testing.T) {
	for _, named := range []bool{false, true} {
		o := []dlockotel.Option{dlockotel.WithURL("redis://user:secret@example.com:6380/1")}
		if named {
			o = append(o, dlockotel.WithLockNames())
		}
		p := newProbe(t, o...)
		c, _ := p.client(10 * time.Second)
		p.unlock(p.lock(c.Mutex("orders/42")))
		for series := range p.metrics() {
			if strings.Contains(series, "secret") || strings.Contains(series, "user") {
				t.Errorf("%s has credentials", series)
			}
			if !strings.Contains(series, "db.system.name=redis") || !strings.Contains(series, "server.address=example.com,server.port=6380") {
				t.Errorf("%s does not name the server", series)
			}
			if strings.HasPrefix(series, "dlock.lease.oldest") {
				continue
			}
			if has := strings.Contains(series, "dlock.lock.name=orders/42"); has != named {
				t.Errorf("%s: has the name: %v", series, has)
			}
		}
	}
}

func TestServer(t *testing.T) {
	for url, want := range map[string]string{
		"rediss://h":                      "db.system.name=redis,server.address=h",
		"postgres://u:p@h:5432/db":        "db.system.name=postgresql,server.address=h,server.port=5432",
		"etcds://a:1,b:2":                 "db.system.name=etcd,server.address=a:1\\,b:2",
		"zk://[::1]:2181":                 "db.system.name=zookeeper,server.address=::1,server.port=2181",
		"redlock://a:1,b:2,c:3":           "db.system.name=redis,server.address=a:1\\,b:2\\,c:3",
		"redlocks://a:1,b:2,c:3":          "db.system.name=redis,server.address=a:1\\,b:2\\,c:3",
		"unix:///run/redis.sock?db=1":     "db.system.name=redis,server.address=/run/redis.sock",
		"postgres:///db?host=/run/pg":     "db.system.name=postgresql,server.address=/run/pg",
		"pg://[::1]/db":                   "db.system.name=postgresql,server.address=::1",
		"file:///var/lock":                "db.system.name=file",
		"nats://h:4222":                   "db.system.name=nats,server.address=h,server.port=4222",
		"redis+cluster://u:p@a:1/?x=y":    "db.system.name=redis,server.address=a,server.port=1",
		"not a URL, with a password p@ss": "",
	} {
		p := newProbe(t, dlockotel.WithURL(url))
		series := fmt.Sprintf("dlock.lease.oldest{%s}", want)
		if _, ok := p.metrics()[series]; !ok {
			t.Errorf("%s: want %s, there are %v", url, series, p.metrics())
		}
	}
}

// TestLossesBeginAtZero has the series of each loss exist before the first: Prometheus'
// increase() does not see a counter that begins with 1, and an alert misses that loss.
func TestLossesBeginAtZero(t *testing.T) {
	for _, named := range []bool{false, true} {
		var o []dlockotel.Option
		format := "dlock.lease.losses{dlock.cause=%s,dlock.mode=exclusive}"
		if named {
			o = append(o, dlockotel.WithLockNames())
			format = "dlock.lease.losses{dlock.cause=%s,dlock.lock.name=x,dlock.mode=exclusive}"
		}
		p := newProbe(t, o...)
		c, _ := p.client(10 * time.Second)
		p.lock(c.Mutex("x"))
		got := p.metrics()
		for _, cause := range []dlock.LossCause{dlock.LossExpired, dlock.LossMaxHold, dlock.LossBroken, dlock.LossTaken} {
			series := fmt.Sprintf(format, cause)
			if n, ok := got[series]; !ok || n != 0 {
				t.Errorf("names %v: %s is %v, there: %v", named, series, n, ok)
			}
		}
	}
}

// TestRenewalsBeginAtZero has the series of renewals exist before the first fails.
func TestRenewalsBeginAtZero(t *testing.T) {
	p := newProbe(t)
	for _, outcome := range []string{"renewed", "failed"} {
		series := fmt.Sprintf("dlock.renewals{dlock.mode=exclusive,dlock.outcome=%s}", outcome)
		if n, ok := p.metrics()[series]; !ok || n != 0 {
			t.Errorf("%s is %v, there: %v", series, n, ok)
		}
	}
	p.hooks.Renewed(dlock.RenewedEvent{Name: "x"})
	p.hooks.RenewalFailed(dlock.RenewalFailedEvent{Name: "x", Err: dlock.ErrUnavailable})
	p.has("dlock.renewals{dlock.mode=exclusive,dlock.outcome=renewed}", 1)
	p.has("dlock.renewals{dlock.mode=exclusive,dlock.outcome=failed}", 1)
}

const lateProvider = "DLOCK_TEST_LATE_PROVIDER" // makes a test process one of TestProviderComesLater's

// TestProviderComesLater has hooks be made, and leases and waits begin, before the program has
// set the global provider, which it does once in a process. Counters begin at zero all the
// same, what has begun is counted, and no hooks hide the oldest lease of others.
func TestProviderComesLater(t *testing.T) {
	if by := os.Getenv(lateProvider); by != "" {
		testProviderComesLater(t, by == "explicit first")
		return
	}
	for _, by := range []string{"explicit first", "global alone"} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestProviderComesLater$")
		cmd.Env = append(os.Environ(), lateProvider+"="+by)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", by, err, out)
		}
	}
}

// testProviderComesLater has the oldest lease be one of hooks that were given the provider by
// hand, if explicitFirst, or else one of hooks that were made before it was set.
func testProviderComesLater(t *testing.T, explicitFirst bool) {
	p := newProbe(t)
	p.reader = metric.NewManualReader()
	provider := metric.NewMeterProvider(metric.WithReader(p.reader))
	leases := 1.0
	var first *dlock.Lease
	if explicitFirst {
		p.hooks = dlockotel.Hooks(dlockotel.WithMeterProvider(provider))
		c, _ := p.client(10 * time.Second)
		first, leases = p.lock(c.Mutex("first")), 2
	}
	begun := time.Now()
	p.hooks = dlockotel.Hooks()
	waits := make(chan struct{})
	count := p.hooks.Waiting
	p.hooks.Waiting = func(ctx context.Context, e dlock.WaitingEvent) { count(ctx, e); close(waits) }
	c, _ := p.client(10 * time.Second)
	lease := p.lock(c.Mutex("x"))
	if first == nil {
		first, begun = lease, time.Now()
	}
	got := make(chan *dlock.Lease)
	go func() {
		l, _ := c.Mutex("x").Lock(context.Background())
		got <- l
	}()
	<-waits
	otel.SetMeterProvider(provider)
	after := dlockotel.Hooks()
	for range 3 {
		age := time.Since(begun)
		metrics := p.metrics()
		if oldest := metrics["dlock.lease.oldest{}"]; oldest < age.Seconds() {
			t.Errorf("the oldest lease is said to be %v s old, one is %v", oldest, age)
		}
		for series, want := range map[string]float64{
			"dlock.lease.active{dlock.mode=exclusive}":                     leases,
			"dlock.acquire.waiters{dlock.mode=exclusive}":                  1,
			"dlock.lease.losses{dlock.cause=expired,dlock.mode=exclusive}": 0,
			"dlock.renewals{dlock.mode=exclusive,dlock.outcome=failed}":    0,
		} {
			if n, ok := metrics[series]; !ok || n != want {
				t.Errorf("%s is %v, want %v; there: %v", series, n, want, ok)
			}
		}
	}
	p.unlock(lease)
	p.unlock(<-got)
	if first != lease {
		p.unlock(first)
	}
	p.has("dlock.lease.active{dlock.mode=exclusive}", 0)
	p.has("dlock.acquire.waiters{dlock.mode=exclusive}", 0)
	runtime.KeepAlive(after)
}

// TestSpanOfACallWithoutContextEnds has the span of a call with a nil context end as
// that of any call that fails.
func TestSpanOfACallWithoutContextEnds(t *testing.T) {
	p := newProbe(t)
	c, _ := p.client(10 * time.Second)
	var none context.Context
	if _, err := c.Mutex("x").Lock(none); err == nil {
		t.Fatal("locked without a context")
	}
	if n := len(p.spans.GetSpans()); n != 1 {
		t.Errorf("%d spans have ended, want 1", n)
	}
}

// TestTraceOfAHandOver has three clients hand a lock over, under one trace.
func TestTraceOfAHandOver(t *testing.T) {
	p := newProbe(t)
	provider := trace.NewTracerProvider(trace.WithSyncer(p.spans))
	ctx, root := provider.Tracer("test").Start(t.Context(), "deploy")
	var leases []*dlock.Lease
	got := make(chan *dlock.Lease, 2)
	for i := range 3 {
		c := p.open("memory://handover", "")
		if i == 0 {
			lease, err := c.Mutex("x").Lock(ctx)
			if err != nil {
				t.Fatal(err)
			}
			leases = append(leases, lease)
			continue
		}
		go func() {
			lease, err := c.Mutex("x").Lock(ctx)
			if err != nil {
				t.Error(err)
			}
			got <- lease
		}()
		p.has("dlock.acquire.waiters{dlock.mode=exclusive}", float64(i))
	}
	p.unlock(leases[0])
	for range 2 {
		p.unlock(<-got)
	}
	root.End()

	spans := p.spans.GetSpans()
	slices.SortStableFunc(spans, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	number := make(map[string]int)
	var tokens []int64
	for i, s := range spans {
		number[s.SpanContext.SpanID().String()] = i + 1
		if s.SpanContext.TraceID() != root.SpanContext().TraceID() {
			t.Errorf("%s is in another trace", s.Name)
		}
		for _, a := range s.Attributes {
			if a.Key == dlockotel.TokenKey {
				tokens = append(tokens, a.Value.AsInt64())
			}
		}
		if s.EndTime.IsZero() {
			t.Errorf("%s has not ended", s.Name)
		}
	}
	slices.Sort(tokens)
	tokens = slices.Compact(tokens)
	var out strings.Builder
	for i, s := range spans {
		fmt.Fprintf(&out, "%d %s", i+1, s.Name)
		if s.Parent.IsValid() {
			fmt.Fprintf(&out, " (in %d)", number[s.Parent.SpanID().String()])
		}
		for _, a := range s.Attributes {
			switch a.Key {
			case dlockotel.TokenKey:
				fmt.Fprintf(&out, " token=%d", slices.Index(tokens, a.Value.AsInt64())+1)
			case dlockotel.OutcomeKey, dlockotel.HandOverKey, dlockotel.EndKey, dlockotel.QueuedKey:
				fmt.Fprintf(&out, " %s=%v", strings.TrimPrefix(string(a.Key), "dlock."), a.Value.String())
			}
		}
		for _, l := range s.Links {
			fmt.Fprintf(&out, " ->%d", number[l.SpanContext.SpanID().String()])
		}
		fmt.Fprintln(&out)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), out.String()) {
		t.Errorf("the README does not show this trace:\n%s", &out)
	}
}

// TestSpansBesideOtherHooks has hooks that are joined with these start a span of their own
// for a call: each ends its own span.
func TestSpansBesideOtherHooks(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	provider := trace.NewTracerProvider(trace.WithSyncer(spans))
	tracer := provider.Tracer("other")
	other := dlock.Hooks{Acquiring: func(ctx context.Context, _ dlock.AcquiringEvent) context.Context {
		ctx, _ = tracer.Start(ctx, "other")
		return ctx
	}}
	hooks := dlock.JoinHooks(dlockotel.Hooks(dlockotel.WithTracerProvider(provider)), other)
	c, err := dlock.New(memory.New(nil), &dlock.Options{Hooks: hooks})
	if err != nil {
		t.Fatal(err)
	}
	lease, err := c.Mutex("x").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(lease.Unlock(t.Context()), c.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	var ended []string
	for _, s := range spans.GetSpans() {
		ended = append(ended, s.Name)
	}
	if !slices.Equal(ended, []string{"dlock acquire", "dlock hold"}) {
		t.Errorf("the spans that have ended are %q", ended)
	}
}

// TestLinksAreWithinALock has a hold link to a hold before it of the same lock: not of a
// client with another prefix or server, nor of a multi-lock whose names look the same, nor
// of another reader of the same hold.
func TestLinksAreWithinALock(t *testing.T) {
	p := newProbe(t)
	a, other := p.open("memory://a", "one/"), p.open("memory://a", "one/")
	prefix, server := p.open("memory://a", "two/"), p.open("memory://b", "one/")
	own, unnamed := p.open("memory://", ""), p.open("memory://", "")
	links := func(lease *dlock.Lease) int {
		t.Helper()
		p.unlock(lease)
		spans := p.spans.GetSpans()
		p.spans.Reset()
		for _, s := range spans {
			if s.Name == "dlock hold" {
				return len(s.Links) - 1 // one is to the call
			}
		}
		t.Fatal("no hold has ended")
		return 0
	}
	for _, on := range []struct {
		name string
		lock dlock.Locker
		want int
	}{
		{"the first", a.Mutex("x y"), 0},
		{"the same", a.Mutex("x y"), 1},
		{"another client", other.Mutex("x y"), 1},
		{"another prefix", prefix.Mutex("x y"), 0},
		{"another server", server.Mutex("x y"), 0},
		{"a multi-lock", a.Multi([]string{"x", "y"}), 0},
		{"the multi-lock again", a.Multi([]string{"x", "y"}), 0},
		{"the lock again", a.Mutex("x y"), 1},
		{"a server without a name", own.Mutex("one/x y"), 0},
		{"another one", unnamed.Mutex("one/x y"), 0},
	} {
		if n := links(p.lock(on.lock)); n != on.want {
			t.Errorf("%s: %d links to a hold before, want %d", on.name, n, on.want)
		}
	}
	first, err := a.RWMutex("x y").RLock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	second, err := a.RWMutex("x y").RLock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := links(second); n != 0 {
		t.Errorf("a reader has %d links to another reader of the hold", n)
	}
	p.unlock(first)
}

// TestNoLeaseHasNoSlack has the renewals of a lock without a lease, as on files, say nothing
// of the slack.
func TestNoLeaseHasNoSlack(t *testing.T) {
	p := newProbe(t)
	p.hooks.Renewed(dlock.RenewedEvent{Name: "x"})
	for series := range p.metrics() {
		if strings.HasPrefix(series, "dlock.renewal.slack") {
			t.Errorf("there is %s", series)
		}
	}
}

// TestOldestOfSeveralHooks has several sets of hooks say what they know to one meter
// provider: the gauge is of the oldest lease of all, whichever set was made first.
func TestOldestOfSeveralHooks(t *testing.T) {
	for holder := range 3 {
		p := newProbe(t)
		all := []dlock.Hooks{p.hooks, dlockotel.Hooks(p.options...), dlockotel.Hooks(p.options...)}
		c, err := dlock.New(memory.New(nil), &dlock.Options{Hooks: all[holder]})
		if err != nil {
			t.Fatal(err)
		}
		lease := p.lock(c.Mutex("x"))
		if p.metrics()["dlock.lease.oldest{}"] <= 0 {
			t.Errorf("the lease of hooks %d is not seen", holder)
		}
		p.unlock(lease)
		p.has("dlock.lease.oldest{}", 0)
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		runtime.KeepAlive(all)
	}
}

// A busyProvider registers a callback while a reader reads, as the SDK's may do by chance. It
// cannot be compared: each set of hooks registers a callback of its own.
type busyProvider struct {
	apimetric.MeterProvider
	reads []func()
}

func (p busyProvider) Meter(name string, o ...apimetric.MeterOption) apimetric.Meter {
	return busyMeter{p.MeterProvider.Meter(name, o...), p.reads}
}

type busyMeter struct {
	apimetric.Meter
	reads []func()
}

func (m busyMeter) RegisterCallback(f apimetric.Callback, o ...apimetric.Observable) (apimetric.Registration, error) {
	for _, read := range m.reads {
		read()
	}
	return m.Meter.RegisterCallback(f, o...)
}

// TestHooksAreMadeDuringAReading has a reader ask the hooks that there are while others are
// made, which have their callback registered when the reading is over.
func TestHooksAreMadeDuringAReading(t *testing.T) {
	reader := metric.NewManualReader()
	sdk := metric.NewMeterProvider(metric.WithReader(reader))
	first := dlockotel.Hooks(dlockotel.WithMeterProvider(sdk))
	read := make(chan error)
	provider := busyProvider{sdk, []func(){func() {
		read <- reader.Collect(context.Background(), new(metricdata.ResourceMetrics))
	}}}
	go dlockotel.Hooks(dlockotel.WithMeterProvider(provider))
	select {
	case err := <-read:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Error("the reading waits for the hooks, which wait for the reading")
	}
	runtime.KeepAlive(first)
}

// TestHooksOfNobodyAreForgotten has hooks come and go with their clients: in the end nothing
// is left of them but gauges at zero. Of a meter provider that nobody uses nothing is left.
func TestHooksOfNobodyAreForgotten(t *testing.T) {
	p := newProbe(t)
	var left []weak.Pointer[trace.TracerProvider] // each is of one client's hooks
	for range 100 {
		tracers := trace.NewTracerProvider()
		left = append(left, weak.Make(tracers))
		hooks := dlockotel.Hooks(append(p.options, dlockotel.WithTracerProvider(tracers))...)
		c, err := dlock.New(memory.New(nil), &dlock.Options{Hooks: hooks})
		if err != nil {
			t.Fatal(err)
		}
		p.unlock(p.lock(c.Mutex("x")))
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	p.hooks = dlock.Hooks{}
	gone(t, left...)
	got := p.metrics()
	for _, series := range []string{
		"dlock.lease.oldest{}", "dlock.lease.active{dlock.mode=exclusive}", "dlock.acquire.waiters{dlock.mode=shared}",
	} {
		if n, ok := got[series]; !ok || n != 0 {
			t.Errorf("%s is %v when its hooks are gone; there: %v", series, n, ok)
		}
	}

	var providers []weak.Pointer[metric.MeterProvider]
	for range 100 {
		provider := metric.NewMeterProvider(metric.WithReader(metric.NewManualReader()))
		providers = append(providers, weak.Make(provider))
		dlockotel.Hooks(dlockotel.WithMeterProvider(provider))
	}
	gone(t, providers...)
}

// gone waits until nobody refers to what all stand for.
func gone[T any](t *testing.T, all ...weak.Pointer[T]) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		runtime.GC()
		left := 0
		for _, one := range all {
			if one.Value() != nil {
				left++
			}
		}
		if left == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d of %d are still referred to", left, len(all))
		}
	}
}

// TestManyNamesAreForgotten has names be attributes, of more locks than are remembered: those
// that are in use are told of, and the others only as long as there are few.
func TestManyNamesAreForgotten(t *testing.T) {
	const many = 3000
	p := newProbe(t, dlockotel.WithLockNames())
	told := func() (n int, sum float64) {
		for series, v := range p.metrics() {
			if strings.HasPrefix(series, "dlock.lease.active") {
				n, sum = n+1, sum+v
			}
		}
		return n, sum
	}
	name := func(i int) string { return fmt.Sprintf("%04d", i) }
	use := func(i int) {
		p.hooks.Acquired(t.Context(), dlock.AcquiredEvent{Name: name(i), Lease: uint64(i)})
		p.hooks.Released(t.Context(), dlock.ReleasedEvent{Name: name(i), Lease: uint64(i)})
	}
	use(0)
	p.has("dlock.lease.active{dlock.lock.name=0000,dlock.mode=exclusive}", 0)
	if n, _ := told(); n != 1 {
		t.Errorf("%d locks are told of, want 1", n)
	}
	for i := range many {
		use(i)
	}
	if n, sum := told(); n > 1024 || sum != 0 {
		t.Errorf("%d locks are told of, with %v leases", n, sum)
	}
	for i := range 1500 {
		p.hooks.Acquired(t.Context(), dlock.AcquiredEvent{Name: name(i), Lease: uint64(i)})
	}
	if n, sum := told(); n < 1500 || sum != 1500 {
		t.Errorf("%d locks are told of, with %v leases of 1500", n, sum)
	}
	for i := range 1500 {
		p.hooks.Released(t.Context(), dlock.ReleasedEvent{Name: name(i), Lease: uint64(i)})
	}
	if n, sum := told(); n > 1024 || sum != 0 {
		t.Errorf("%d locks are told of, with %v leases", n, sum)
	}
}

// TestNamedCountersBeginAtZero has a lease begin before its first loss is read, and be lost
// between two readings.
func TestNamedCountersBeginAtZero(t *testing.T) {
	p := newProbe(t, dlockotel.WithLockNames())
	const series = "dlock.lease.losses{dlock.cause=taken,dlock.lock.name=x,dlock.mode=exclusive}"
	p.hooks.Acquired(t.Context(), dlock.AcquiredEvent{Name: "x", Lease: 1})
	if n, ok := p.metrics()[series]; !ok || n != 0 {
		t.Errorf("%s is %v, there: %v", series, n, ok)
	}
	p.hooks.Lost(dlock.LostEvent{Name: "x", Lease: 1, Cause: dlock.LossTaken, Err: dlock.ErrLost})
	p.has(series, 1)
}

// TestJoinedHooksOfThisPackage has two sets of hooks trace the same calls: each puts its spans
// under the caller's, and ends them.
func TestJoinedHooksOfThisPackage(t *testing.T) {
	first, second := newProbe(t), newProbe(t)
	provider := trace.NewTracerProvider()
	first.hooks = dlock.JoinHooks(first.hooks, second.hooks)
	c, _ := first.client(10 * time.Second)
	ctx, caller := provider.Tracer("test").Start(t.Context(), "caller")
	lease, err := c.Mutex("x").Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	inner, err := c.Mutex("y").Lock(lease.Context(ctx))
	if err != nil {
		t.Fatal(err)
	}
	first.unlock(inner)
	first.unlock(lease)
	for i, p := range []*probe{first, second} {
		spans := p.spans.GetSpans()
		if len(spans) != 4 {
			t.Errorf("hooks %d have ended %d spans, want 4", i, len(spans))
		}
		for _, s := range spans {
			if s.Parent.SpanID() != caller.SpanContext().SpanID() {
				t.Errorf("%s of hooks %d is not under the caller's span", s.Name, i)
			}
		}
	}
}

// TestCallWithinACall has a hook make a call of another client in the middle of a call: its
// span is under that of the call which makes it.
func TestCallWithinACall(t *testing.T) {
	p := newProbe(t)
	inner, _ := p.client(10 * time.Second)
	p.hooks = dlock.JoinHooks(p.hooks, dlock.Hooks{Acquiring: func(ctx context.Context, _ dlock.AcquiringEvent) context.Context {
		lease, err := inner.Mutex("inner").Lock(ctx)
		if err != nil {
			t.Error(err)
			return nil
		}
		p.unlock(lease)
		return nil
	}})
	outer, _ := p.client(10 * time.Second)
	p.unlock(p.lock(outer.Mutex("outer")))
	under := make(map[string]string) // names of the spans that others are under
	names := make(map[string]string)
	all := p.spans.GetSpans()
	lockOf := func(s tracetest.SpanStub) string {
		for _, a := range s.Attributes {
			if a.Key == dlockotel.NameKey {
				return s.Name + " " + a.Value.AsString()
			}
		}
		return s.Name
	}
	for _, s := range all {
		names[s.SpanContext.SpanID().String()] = lockOf(s)
	}
	for _, s := range all {
		under[lockOf(s)] = names[s.Parent.SpanID().String()]
	}
	want := map[string]string{
		"dlock acquire outer": "", "dlock hold outer": "",
		"dlock acquire inner": "dlock acquire outer", "dlock hold inner": "dlock acquire outer",
	}
	if !maps.Equal(under, want) {
		t.Errorf("spans are under %v, want %v", under, want)
	}
}

// TestNamesOfAnyBytes has a lock's name be no UTF-8, which no exporter takes: of a batch with
// such a name nothing would arrive.
func TestNamesOfAnyBytes(t *testing.T) {
	p := newProbe(t, dlockotel.WithLockNames())
	c, b := p.client(10 * time.Second)
	lease := p.lock(c.Mutex("\xff"))
	b.FailNext(errors.New("\xfe"))
	other, _ := p.client(10 * time.Second)
	got := make(chan *dlock.Lease)
	go func() {
		l, _ := other.Mutex("\xff").Lock(context.Background())
		got <- l
	}()
	p.has("dlock.acquire.waiters{dlock.lock.name=\ufffd,dlock.mode=exclusive}", 1)
	if err := lease.Unlock(t.Context()); err == nil {
		t.Fatal("the server has not failed")
	}
	p.unlock(<-got)
	valid := func(what, text string) {
		if !utf8.ValidString(text) {
			t.Errorf("%s is %q", what, text)
		}
	}
	p.metrics() // looks at them
	for _, s := range p.spans.GetSpans() {
		valid("a status", s.Status.Description)
		for _, a := range s.Attributes {
			valid(string(a.Key), a.Value.String())
		}
		for _, e := range s.Events {
			for _, a := range e.Attributes {
				valid(string(a.Key), a.Value.String())
			}
		}
	}
}

// TestWaitThatIsOverWhenItIsTold has the hooks hear of the end of a call before they hear that
// it waits, which another goroutine tells: no waiter is ever missing.
func TestWaitThatIsOverWhenItIsTold(t *testing.T) {
	p := newProbe(t)
	const series = "dlock.acquire.waiters{dlock.mode=exclusive}"
	p.hooks.NotAcquired(t.Context(), dlock.NotAcquiredEvent{Op: "lock", Name: "x", Queued: true, Outcome: dlock.OutcomeCanceled})
	if n := p.metrics()[series]; n != 0 {
		t.Errorf("%s is %v", series, n)
	}
	p.hooks.Waiting(t.Context(), dlock.WaitingEvent{Op: "lock", Name: "x", Lock: "x"})
	p.has(series, 0)
}
