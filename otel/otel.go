// Package dlockotel makes metrics and traces of what package dlock does, with
// OpenTelemetry:
//
//	client, err := dlock.Open(ctx, url, &dlock.Options{Hooks: dlockotel.Hooks(dlockotel.WithURL(url))})
//
// See the README for the metrics and spans.
package dlockotel

import (
	"context"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// Scope is the name of the meter and of the tracer.
const Scope = "github.com/dlock-go/dlock/otel"

// Keys of the attributes of metrics and spans, beside db.system.name, server.address,
// server.port and error.type.
const (
	OutcomeKey  = attribute.Key("dlock.outcome")   // of a call: acquired, held, canceled or failed; of a renewal: renewed or failed
	ModeKey     = attribute.Key("dlock.mode")      // exclusive or shared
	EndKey      = attribute.Key("dlock.end")       // released, lost or closed
	CauseKey    = attribute.Key("dlock.cause")     // of a loss: expired, max_hold, broken or taken
	HandOverKey = attribute.Key("dlock.hand_over") // local or remote
	OpKey       = attribute.Key("dlock.operation") // lock, trylock, rlock, tryrlock, renew or unlock
	NameKey     = attribute.Key("dlock.lock.name") // on spans; on metrics if WithLockNames asks for it
	TokenKey    = attribute.Key("dlock.token")     // on spans
	QueuedKey   = attribute.Key("dlock.queued")    // on spans
	NestedKey   = attribute.Key("dlock.nested")    // on spans: a re-entry
	errorKey    = attribute.Key("error.type")      // see dlock.ErrorType
	systemKey   = attribute.Key("db.system.name")  // by semantic conventions
	addressKey  = attribute.Key("server.address")  // by semantic conventions
	portKey     = attribute.Key("server.port")     // by semantic conventions
)

type config struct {
	meters  metric.MeterProvider
	tracers trace.TracerProvider
	server  []attribute.KeyValue
	named   bool
}

// An Option changes what Hooks returns.
type Option func(*config)

// WithMeterProvider has metrics go to p rather than to the global provider.
func WithMeterProvider(p metric.MeterProvider) Option { return func(c *config) { c.meters = p } }

// WithTracerProvider has spans go to p rather than to the global provider.
func WithTracerProvider(p trace.TracerProvider) Option { return func(c *config) { c.tracers = p } }

// WithURL adds db.system.name, server.address and server.port to metrics and spans, as
// the URL that the client is opened with says. Nothing else of the URL is used, neither
// user nor password. A malformed URL adds nothing.
func WithURL(url string) Option {
	return func(c *config) { c.server = serverOf(url) }
}

// WithLockNames makes the names of locks an attribute of the metrics, as they always are
// of the spans. Use it only if there are few names: each has time series of its own.
func WithLockNames() Option { return func(c *config) { c.named = true } }

// serverOf returns the attributes of the server at url.
func serverOf(url string) []attribute.KeyValue {
	u, err := backend.ParseURL(url)
	if err != nil {
		return nil
	}
	attrs := []attribute.KeyValue{systemKey.String(systemOf(u.Scheme))}
	if len(u.Hosts) == 1 {
		if host, port, err := net.SplitHostPort(u.Hosts[0]); err == nil {
			if n, err := strconv.Atoi(port); err == nil {
				return append(attrs, addressKey.String(host), portKey.Int(n))
			}
		}
	}
	if len(u.Hosts) > 0 {
		attrs = append(attrs, addressKey.String(strings.Join(u.Hosts, ",")))
	}
	return attrs
}

// systemOf returns the db.system.name of the backends with that scheme.
func systemOf(scheme string) string {
	switch {
	case strings.HasPrefix(scheme, "redis"), strings.HasPrefix(scheme, "valkey"), scheme == "redlock":
		return "redis"
	case strings.HasPrefix(scheme, "postgres"), scheme == "pg":
		return "postgresql"
	case scheme == "zk":
		return "zookeeper"
	case scheme == "etcds":
		return "etcd"
	}
	base, _, _ := strings.Cut(scheme, "+")
	return base
}

// A telemetry is what the hooks of one call of Hooks share.
type telemetry struct {
	config
	instruments
	tracer trace.Tracer
	begin  sync.Once // calls beginAll

	mu      sync.Mutex
	holds   map[uint64]hold       // by the number of the lease
	leases  map[countKey]int64    // leases that have not ended
	waiters map[countKey]int64    // calls that wait
	last    map[lockKey]grantSpan // the last hold of a lock, for at most maxLast locks
}

// A countKey says of which locks something is counted. The name is empty unless names are
// attributes.
type countKey struct {
	name   string
	shared bool
}

// A lockKey tells a lock from those of other servers and of clients with other prefixes.
type lockKey struct{ place, fullName string }

// A grantSpan is the span of a hold, with its token.
type grantSpan struct {
	trace.SpanContext
	token uint64
}

// maxLast is for how many locks the last hold is remembered.
const maxLast = 1024

// A hold is a lease that has not ended.
type hold struct {
	span  trace.Span
	since time.Time
}

// Hooks returns hooks for dlock.Options.Hooks. Several clients can share them. Join
// them with others by dlock.JoinHooks.
func Hooks(o ...Option) dlock.Hooks {
	t := &telemetry{
		holds:   make(map[uint64]hold),
		leases:  make(map[countKey]int64),
		waiters: make(map[countKey]int64),
		last:    make(map[lockKey]grantSpan),
	}
	for _, set := range o {
		set(&t.config)
	}
	if t.meters == nil {
		t.meters = otel.GetMeterProvider()
	}
	if t.tracers == nil {
		t.tracers = otel.GetTracerProvider()
	}
	t.tracer = t.tracers.Tracer(Scope)
	t.makeInstruments(t.meters.Meter(Scope))
	return dlock.Hooks{
		Acquiring:     t.acquiring,
		Waiting:       t.waiting,
		Acquired:      t.acquired,
		NotAcquired:   t.notAcquired,
		Renewed:       t.renewed,
		RenewalFailed: t.renewalFailed,
		Released: func(ctx context.Context, e dlock.ReleasedEvent) {
			t.end(ctx, ending{"released", e.Name, e.Shared, e.Lease, e.Age, "", e.Err})
		},
		Lost: func(e dlock.LostEvent) {
			t.end(context.Background(), ending{"lost", e.Name, e.Shared, e.Lease, e.Age, e.Cause, e.Err})
		},
		Closed: func(ctx context.Context, e dlock.ClosedEvent) {
			t.end(ctx, ending{"closed", e.Name, e.Shared, e.Lease, e.Age, "", e.Err})
		},
	}
}

// beginAll begins the counters of all locks together.
func (t *telemetry) beginAll() {
	if !t.named {
		t.beginCounters(context.Background(), "", false)
		t.beginCounters(context.Background(), "", true)
	}
}

// beginCounters has what alerts look for be 0 before it happens first. Prometheus sees no
// increase of a counter that begins with 1, and an alert would miss the first loss and the
// first renewal that fails.
func (t *telemetry) beginCounters(ctx context.Context, name string, shared bool) {
	for _, cause := range []dlock.LossCause{dlock.LossExpired, dlock.LossMaxHold, dlock.LossBroken, dlock.LossTaken} {
		t.losses.Add(ctx, 0, t.attrs(name, shared, CauseKey.String(string(cause))))
	}
	for _, outcome := range []string{renewed, failed} {
		t.renewals.Add(ctx, 0, t.attrs(name, shared, OutcomeKey.String(outcome)))
	}
}

// A callKey finds the spans of a call in its context. Other hooks that are joined with
// these may have put a span there that is not ours to end.
type callKey struct{ *telemetry }

// callSpans are the span of a call, and its caller's: a hold is no part of the call that
// has got it.
type callSpans struct{ own, caller trace.Span }

// acquiring begins the span of a call.
func (t *telemetry) acquiring(ctx context.Context, e dlock.AcquiringEvent) context.Context {
	caller := trace.SpanFromContext(ctx)
	attrs := append(t.spanAttrs(e.Name, e.Shared), OpKey.String(e.Op))
	ctx, own := t.tracer.Start(ctx, "dlock acquire", trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attrs...))
	return context.WithValue(ctx, callKey{t}, callSpans{own, caller})
}

// spanOf returns the span of a call, and one that does nothing for any other context.
func (t *telemetry) spanOf(ctx context.Context) trace.Span {
	if c, ok := ctx.Value(callKey{t}).(callSpans); ok {
		return c.own
	}
	return trace.SpanFromContext(context.Background())
}

func (t *telemetry) waiting(ctx context.Context, e dlock.WaitingEvent) {
	t.spanOf(ctx).AddEvent("queued", trace.WithAttributes(NameKey.String(e.Lock)))
	t.count(t.waiters, e.Name, e.Shared, 1)
}

// count adds n to what one of t's maps says of the lock.
func (t *telemetry) count(of map[countKey]int64, name string, shared bool, n int64) {
	if !t.named {
		name = ""
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	of[countKey{name, shared}] += n
}

func (t *telemetry) acquired(ctx context.Context, e dlock.AcquiredEvent) {
	t.endWait(e.Queued, e.Name, e.Shared)
	t.acquireDuration.Record(ctx, e.Waited.Seconds(), t.attrs(e.Name, e.Shared, OutcomeKey.String("acquired")))
	t.count(t.leases, e.Name, e.Shared, 1)
	if t.named {
		t.beginCounters(ctx, e.Name, e.Shared)
	}
	if e.HandOver != dlock.NoHandOver {
		t.handOvers.Add(ctx, 1, t.attrs(e.Name, e.Shared, HandOverKey.String(string(e.HandOver))))
	}
	span := t.spanOf(ctx)
	span.SetAttributes(OutcomeKey.String("acquired"), QueuedKey.Bool(e.Queued), TokenKey.Int64(int64(e.Token)))
	if e.HandOver != dlock.NoHandOver {
		span.SetAttributes(HandOverKey.String(string(e.HandOver)))
	}
	span.End()
	h := hold{t.startHold(ctx, span.SpanContext(), e), time.Now()}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.holds[e.Lease] = h
}

// startHold begins the span of a hold, under the span of the caller. It links to the
// call that has got the hold, and to the hold before it if that was seen here.
func (t *telemetry) startHold(ctx context.Context, call trace.SpanContext, e dlock.AcquiredEvent) trace.Span {
	links := []trace.Link{{SpanContext: call}}
	if previous, ok := t.previous(e); ok {
		links = append(links, trace.Link{SpanContext: previous, Attributes: []attribute.KeyValue{attribute.String("dlock.link", "previous hold")}})
	}
	if c, ok := ctx.Value(callKey{t}).(callSpans); ok {
		ctx = trace.ContextWithSpan(ctx, c.caller)
	}
	attrs := append(t.spanAttrs(e.Name, e.Shared), TokenKey.Int64(int64(e.Token)), NestedKey.Bool(e.Nested))
	_, span := t.tracer.Start(ctx, "dlock hold", trace.WithLinks(links...), trace.WithAttributes(attrs...))
	t.remember(e, span.SpanContext())
	return span
}

// previous returns the span of the hold before e, if that was one of this process. Its
// token is smaller: readers who share a hold have one token, and are not before each other.
func (t *telemetry) previous(e dlock.AcquiredEvent) (trace.SpanContext, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	last, ok := t.last[lockKey{e.Place, e.FullName}]
	return last.SpanContext, ok && !e.Nested && last.token < e.Token
}

// remember keeps the span of e for the hold after it. A multi-lock is no lock of its own.
func (t *telemetry) remember(e dlock.AcquiredEvent, span trace.SpanContext) {
	if !span.IsValid() || e.Nested || e.FullName == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.last) >= maxLast {
		clear(t.last)
	}
	key := lockKey{e.Place, e.FullName}
	if t.last[key].token <= e.Token { // a later hold may have been told of before
		t.last[key] = grantSpan{span, e.Token}
	}
}

func (t *telemetry) notAcquired(ctx context.Context, e dlock.NotAcquiredEvent) {
	t.endWait(e.Queued, e.Name, e.Shared)
	span := t.spanOf(ctx)
	span.SetAttributes(OutcomeKey.String(string(e.Outcome)), QueuedKey.Bool(e.Queued))
	outcome := []attribute.KeyValue{OutcomeKey.String(string(e.Outcome))}
	if e.Outcome == dlock.OutcomeFailed {
		kind := errorKey.String(dlock.ErrorType(e.Err))
		outcome = append(outcome, kind)
		span.SetAttributes(kind)
		span.SetStatus(codes.Error, e.Err.Error())
		t.errors.Add(ctx, 1, t.attrs(e.Name, e.Shared, OpKey.String(e.Op), kind))
	}
	t.acquireDuration.Record(ctx, e.Waited.Seconds(), t.attrs(e.Name, e.Shared, outcome...))
	span.End()
}

func (t *telemetry) endWait(queued bool, name string, shared bool) {
	if queued {
		t.count(t.waiters, name, shared, -1)
	}
}

// What became of an attempt to renew a hold.
const renewed, failed = "renewed", "failed"

func (t *telemetry) renewed(e dlock.RenewedEvent) {
	t.renewals.Add(context.Background(), 1, t.attrs(e.Name, e.Shared, OutcomeKey.String(renewed)))
	if e.TTL <= 0 {
		return // no lease
	}
	t.slack.Record(context.Background(), float64(e.Left)/float64(e.TTL), t.attrs(e.Name, e.Shared))
}

func (t *telemetry) renewalFailed(e dlock.RenewalFailedEvent) {
	t.renewals.Add(context.Background(), 1, t.attrs(e.Name, e.Shared, OutcomeKey.String(failed)))
	t.errors.Add(context.Background(), 1, t.attrs(e.Name, e.Shared, OpKey.String("renew"), errorKey.String(dlock.ErrorType(e.Err))))
}

// An ending is what a lease has ended with.
type ending struct {
	what, name string
	shared     bool
	lease      uint64
	age        time.Duration
	cause      dlock.LossCause
	err        error
}

func (t *telemetry) end(ctx context.Context, e ending) {
	t.mu.Lock()
	h, ok := t.holds[e.lease]
	delete(t.holds, e.lease)
	t.mu.Unlock()
	if !ok {
		return
	}
	t.count(t.leases, e.name, e.shared, -1)
	t.leaseDuration.Record(ctx, e.age.Seconds(), t.attrs(e.name, e.shared, EndKey.String(e.what)))
	h.span.SetAttributes(EndKey.String(e.what))
	if e.what == "lost" {
		cause := CauseKey.String(string(e.cause))
		t.losses.Add(ctx, 1, t.attrs(e.name, e.shared, cause))
		h.span.SetAttributes(cause)
	}
	if e.err != nil {
		kind := errorKey.String(dlock.ErrorType(e.err))
		h.span.SetAttributes(kind)
		h.span.SetStatus(codes.Error, e.err.Error())
		if e.what != "lost" {
			t.errors.Add(ctx, 1, t.attrs(e.name, e.shared, OpKey.String("unlock"), kind))
		}
	}
	h.span.End()
}

// attrs are the attributes of a measurement.
func (t *telemetry) attrs(name string, shared bool, more ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(t.attrSet(name, shared, more...))
}

func (t *telemetry) attrSet(name string, shared bool, more ...attribute.KeyValue) attribute.Set {
	all := make([]attribute.KeyValue, 0, len(t.server)+len(more)+2)
	all = append(append(append(all, t.server...), more...), ModeKey.String(mode(shared)))
	if t.named {
		all = append(all, NameKey.String(name))
	}
	return attribute.NewSet(all...)
}

func (t *telemetry) spanAttrs(name string, shared bool) []attribute.KeyValue {
	all := make([]attribute.KeyValue, 0, len(t.server)+4)
	return append(append(all, t.server...), ModeKey.String(mode(shared)), NameKey.String(name))
}

func mode(shared bool) string {
	if shared {
		return "shared"
	}
	return "exclusive"
}
