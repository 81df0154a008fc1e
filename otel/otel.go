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
	"slices"
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
	TokenKey    = attribute.Key("dlock.token")     // on spans; a multi-lock has none
	LinkKey     = attribute.Key("dlock.link")      // on the link of a hold to the one before
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
	address := text(addressOf(u))
	if host, port, err := net.SplitHostPort(address); err == nil && len(u.Hosts) == 1 {
		if n, err := strconv.Atoi(port); err == nil {
			return append(attrs, addressKey.String(host), portKey.Int(n))
		}
	}
	if address != "" {
		attrs = append(attrs, addressKey.String(address))
	}
	return attrs
}

// addressOf returns the hosts of u, each with its port if it has one, or the path of a Unix
// socket.
func addressOf(u *backend.URL) string {
	switch {
	case len(u.Hosts) == 1 && strings.HasSuffix(u.Hosts[0], "]"): // IPv6 without a port
		return strings.Trim(u.Hosts[0], "[]")
	case len(u.Hosts) > 0:
		return strings.Join(u.Hosts, ",")
	case u.Scheme == "unix":
		return u.Path
	case systemOf(u.Scheme) == "postgresql":
		return u.Params.Take("host", "")
	}
	return ""
}

// systemOf returns the db.system.name of the backends with that scheme.
func systemOf(scheme string) string {
	for system, prefixes := range map[string][]string{
		"redis":      {"redis", "valkey", "redlock", "unix"},
		"postgresql": {"postgres", "pg"},
		"zookeeper":  {"zk"},
		"etcd":       {"etcd"},
	} {
		if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(scheme, p) }) {
			return system
		}
	}
	base, _, _ := strings.Cut(scheme, "+")
	return base
}

// A telemetry is the state that the hooks of one call of Hooks share.
type telemetry struct {
	config
	instruments
	tracer trace.Tracer

	mu     sync.Mutex
	holds  map[uint64]hold // by the number of the lease
	counts map[countKey]lockCounts
	last   map[lockKey]grantSpan // the last hold of a lock, for at most maxIdle locks
}

// A countKey says of which locks something is counted. The name is empty unless names are
// attributes.
type countKey struct {
	name   string
	shared bool
}

// lockCounts are those of the leases that have not ended and of the calls that wait.
type lockCounts struct {
	leases, waiters int64
	begun           bool // the counters of these locks are at least 0
}

// A lockKey tells a lock from those of other servers and of clients with other prefixes.
type lockKey struct{ place, fullName string }

// A grantSpan is the span of a hold, with its token.
type grantSpan struct {
	trace.SpanContext
	token uint64
}

// maxIdle is for how many locks something is remembered although nobody uses them.
const maxIdle = 1024

// A hold is a lease that has not ended.
type hold struct {
	span  trace.Span
	since time.Time
}

// Hooks returns hooks for dlock.Options.Hooks. Several clients can share them. Join
// them with others by dlock.JoinHooks.
func Hooks(o ...Option) dlock.Hooks {
	t := &telemetry{
		holds:  make(map[uint64]hold),
		counts: make(map[countKey]lockCounts),
		last:   make(map[lockKey]grantSpan),
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

// beginCounters has what alerts look for be 0 before it happens first. Prometheus sees no
// increase of a counter that begins with 1, and an alert would miss the first loss and the
// first renewal that fails. It is called when the meter provider reads: one that is made the
// global provider after the hooks drops what was added before.
func (t *telemetry) beginCounters(ctx context.Context) {
	for _, key := range t.notBegun() {
		for _, cause := range []dlock.LossCause{dlock.LossExpired, dlock.LossMaxHold, dlock.LossBroken, dlock.LossTaken} {
			t.losses.Add(ctx, 0, t.attrs(key.name, key.shared, CauseKey.String(string(cause))))
		}
		for _, outcome := range []string{renewed, failed} {
			t.renewals.Add(ctx, 0, t.attrs(key.name, key.shared, OutcomeKey.String(outcome)))
		}
	}
}

// notBegun returns those whose counters are to begin now.
func (t *telemetry) notBegun() (keys []countKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, n := range t.counts {
		if !n.begun {
			n.begun = true
			t.counts[key] = n
			keys = append(keys, key)
		}
	}
	return keys
}

// A callKey finds the callSpans of the innermost call in its context. Other hooks that are
// joined with these may have put a span there that is not ours to end.
type callKey struct{}

// callSpans are the span of a call, and its caller's: a hold is no part of the call that
// has got it.
type callSpans struct {
	of          *telemetry
	call        dlock.AcquiringEvent
	own, caller trace.Span
	outer       *callSpans // of other hooks that are joined with these, or of a call that makes this one
}

// acquiring begins the span of a call.
func (t *telemetry) acquiring(ctx context.Context, e dlock.AcquiringEvent) context.Context {
	outer, _ := ctx.Value(callKey{}).(*callSpans)
	s := &callSpans{of: t, call: e, caller: callerSpan(ctx, outer, e), outer: outer}
	if s.outer != nil {
		ctx = trace.ContextWithSpan(ctx, s.caller)
	}
	attrs := append(t.spanAttrs(e.Name, e.Shared), OpKey.String(e.Op))
	ctx, s.own = t.tracer.Start(ctx, "dlock acquire", trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attrs...))
	return context.WithValue(ctx, callKey{}, s)
}

// callerSpan returns the span of the caller. If other hooks of this package are joined with
// these, the span in ctx is theirs for the same call.
func callerSpan(ctx context.Context, outer *callSpans, e dlock.AcquiringEvent) trace.Span {
	span := trace.SpanFromContext(ctx)
	if outer != nil && outer.call == e && outer.own.SpanContext().Equal(span.SpanContext()) {
		return outer.caller
	}
	return span
}

// spansOf returns the spans of a call, nil for any other context.
func (t *telemetry) spansOf(ctx context.Context) *callSpans {
	s, _ := ctx.Value(callKey{}).(*callSpans)
	for s != nil && s.of != t {
		s = s.outer
	}
	return s
}

// spanOf returns the span of a call, and one that does nothing for any other context.
func (t *telemetry) spanOf(ctx context.Context) trace.Span {
	if s := t.spansOf(ctx); s != nil {
		return s.own
	}
	return trace.SpanFromContext(context.Background())
}

func (t *telemetry) waiting(ctx context.Context, e dlock.WaitingEvent) {
	t.spanOf(ctx).AddEvent("queued", trace.WithAttributes(nameAttr(e.Lock)))
	t.count(e.Name, e.Shared, lockCounts{waiters: 1})
}

// count adds what has changed to the counts of a lock. It forgets the lock if nobody uses it
// and there are many.
func (t *telemetry) count(name string, shared bool, change lockCounts) {
	if !t.named {
		name = ""
	}
	key := countKey{name, shared}
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.counts[key]
	n.leases += change.leases
	n.waiters += change.waiters
	if t.counts[key] = n; n.leases == 0 && n.waiters == 0 && len(t.counts) > maxIdle {
		delete(t.counts, key)
	}
}

func (t *telemetry) acquired(ctx context.Context, e dlock.AcquiredEvent) {
	change := lockCounts{leases: 1}
	if e.Queued {
		change.waiters = -1
	}
	t.count(e.Name, e.Shared, change)
	t.acquireDuration.Record(ctx, e.Waited.Seconds(), t.attrs(e.Name, e.Shared, OutcomeKey.String("acquired")))
	if e.HandOver != dlock.NoHandOver {
		t.handOvers.Add(ctx, 1, t.attrs(e.Name, e.Shared, HandOverKey.String(string(e.HandOver))))
	}
	span := t.spanOf(ctx)
	span.SetAttributes(OutcomeKey.String("acquired"), QueuedKey.Bool(e.Queued))
	span.SetAttributes(tokenAttr(e.Token)...)
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
		links = append(links, trace.Link{SpanContext: previous, Attributes: []attribute.KeyValue{LinkKey.String("previous hold")}})
	}
	if s := t.spansOf(ctx); s != nil {
		ctx = trace.ContextWithSpan(ctx, s.caller)
	}
	attrs := append(t.spanAttrs(e.Name, e.Shared), NestedKey.Bool(e.Nested))
	attrs = append(attrs, tokenAttr(e.Token)...)
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
	if len(t.last) >= maxIdle {
		clear(t.last)
	}
	key := lockKey{e.Place, e.FullName}
	if t.last[key].token <= e.Token { // a later hold may have been told of before
		t.last[key] = grantSpan{span, e.Token}
	}
}

func (t *telemetry) notAcquired(ctx context.Context, e dlock.NotAcquiredEvent) {
	if e.Queued {
		t.count(e.Name, e.Shared, lockCounts{waiters: -1})
	}
	span := t.spanOf(ctx)
	span.SetAttributes(OutcomeKey.String(string(e.Outcome)), QueuedKey.Bool(e.Queued))
	outcome := []attribute.KeyValue{OutcomeKey.String(string(e.Outcome))}
	if e.Outcome == dlock.OutcomeFailed {
		kind := errorKey.String(dlock.ErrorType(e.Err))
		outcome = append(outcome, kind)
		span.SetAttributes(kind)
		setError(span, e.Err)
		t.errors.Add(ctx, 1, t.attrs(e.Name, e.Shared, OpKey.String(e.Op), kind))
	}
	t.acquireDuration.Record(ctx, e.Waited.Seconds(), t.attrs(e.Name, e.Shared, outcome...))
	span.End()
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
	t.count(e.name, e.shared, lockCounts{leases: -1})
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
		setError(h.span, e.err)
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
		all = append(all, nameAttr(name))
	}
	return attribute.NewSet(all...)
}

func (t *telemetry) spanAttrs(name string, shared bool) []attribute.KeyValue {
	all := make([]attribute.KeyValue, 0, len(t.server)+4)
	return append(append(all, t.server...), ModeKey.String(mode(shared)), nameAttr(name))
}

// nameAttr is the name of a lock, which may be any bytes.
func nameAttr(name string) attribute.KeyValue { return NameKey.String(text(name)) }

// tokenAttr is the fencing token of a hold. A multi-lock has none.
func tokenAttr(token uint64) []attribute.KeyValue {
	if token == 0 {
		return nil
	}
	return []attribute.KeyValue{TokenKey.Int64(int64(token))}
}

func setError(span trace.Span, err error) { span.SetStatus(codes.Error, text(err.Error())) }

// text is s for an exporter, which would send nothing of a batch with a text that is no UTF-8.
func text(s string) string { return strings.ToValidUTF8(s, "\ufffd") }

func mode(shared bool) string {
	if shared {
		return "shared"
	}
	return "exclusive"
}
