package dlockotel

import (
	"context"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"time"
	"weak"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Leases, waiters and the age of the oldest lease are observable instruments: a provider that is
// set after a lease began would hear only of its end from one that adds. If several callbacks
// observe the same attributes the SDK keeps the value of one alone, so there is one callback for
// each meter provider, which adds up all the telemetry that goes there.

// collectors are those of the meter providers that are in use. A provider keeps its collector
// as part of the callback, and nothing here keeps either.
var collectors struct {
	sync.Mutex
	all []weak.Pointer[collector]
}

// placeholder is the global provider until the program sets one, to which it then passes on
// its instruments and callbacks.
var placeholder = otel.GetMeterProvider()

// A collector has the values of one meter provider's observable instruments. The mutex of
// collectors guards it.
type collector struct {
	provider metric.MeterProvider // nil: it cannot be compared, and has a collector for each telemetry
	oldest   metric.Float64ObservableGauge
	leases   metric.Int64ObservableUpDownCounter
	waiters  metric.Int64ObservableUpDownCounter
	sources
}

// sources are where the values of a collector come from.
type sources struct {
	telemetry map[weak.Pointer[telemetry]]struct{} // that is in use

	// Attributes without names that were collected once: they are collected as long as there
	// is the provider, which keeps them in other metrics anyway.
	servers map[attribute.Set]struct{}
	modes   map[attribute.Set]struct{} // of each server
}

func newSources() sources {
	return sources{
		telemetry: make(map[weak.Pointer[telemetry]]struct{}),
		servers:   make(map[attribute.Set]struct{}),
		modes:     make(map[attribute.Set]struct{}),
	}
}

// register adds t to the collector of its meter provider, until nobody refers to t.
func (t *telemetry) register(m metric.Meter) {
	found := findCollector(t.meters)
	if found == nil {
		found = newCollector(t.meters, m)
	}
	collectors.Lock()
	defer collectors.Unlock()
	replacePlaceholder()
	c := collectorOf(t.meters)
	if c == nil {
		c = found
		collectors.all = append(collectors.all, weak.Make(c))
	} // else a new one that was made here came second, and has nothing to collect
	c.servers[attribute.NewSet(t.server...)] = struct{}{}
	if !t.named {
		for _, shared := range []bool{false, true} {
			c.modes[t.attrSet("", shared)] = struct{}{}
			t.counts[countKey{shared: shared}] = lockCounts{}
		}
	}
	self := weak.Make(t)
	c.telemetry[self] = struct{}{}
	runtime.AddCleanup(t, unregister, self)
}

// unregister removes self, to which nobody refers any more.
func unregister(self weak.Pointer[telemetry]) {
	collectors.Lock()
	defer collectors.Unlock()
	for _, one := range collectors.all {
		if c := one.Value(); c != nil {
			delete(c.telemetry, self)
		}
	}
}

// findCollector returns the collector of a provider, nil if there is none yet.
func findCollector(provider metric.MeterProvider) *collector {
	collectors.Lock()
	defer collectors.Unlock()
	replacePlaceholder()
	return collectorOf(provider)
}

// collectorOf is findCollector for a caller that holds the mutex of collectors.
func collectorOf(provider metric.MeterProvider) *collector {
	collectors.all = slices.DeleteFunc(collectors.all, func(one weak.Pointer[collector]) bool { return one.Value() == nil })
	if !reflect.ValueOf(provider).Comparable() {
		return nil
	}
	for _, one := range collectors.all {
		if c := one.Value(); c != nil && c.provider == provider {
			return c
		}
	}
	return nil
}

// replacePlaceholder makes the placeholder's collector that of the global provider, once the
// program has set one. If that has a collector already, it gets the sources of the other. The
// caller holds the mutex of collectors.
func replacePlaceholder() {
	global, early := otel.GetMeterProvider(), collectorOf(placeholder)
	if early == nil || !reflect.ValueOf(global).Comparable() || global == placeholder {
		return
	}
	c := collectorOf(global)
	if c == nil {
		early.provider = global
		return
	}
	maps.Copy(c.telemetry, early.telemetry)
	maps.Copy(c.servers, early.servers)
	maps.Copy(c.modes, early.modes)
	early.sources = newSources()
}

// newCollector makes the instruments. What fails goes to the global error handler. The caller
// does not hold the mutex of collectors: the SDK registers a callback when no reader reads, and
// a reader waits for that mutex in collect.
func newCollector(provider metric.MeterProvider, m metric.Meter) *collector {
	c := &collector{
		sources: newSources(),
		oldest: made(m.Float64ObservableGauge("dlock.lease.oldest", metric.WithUnit("s"),
			metric.WithDescription("How long the oldest lease has lasted that has not ended."))),
		leases: made(m.Int64ObservableUpDownCounter("dlock.lease.active", metric.WithUnit("{lease}"),
			metric.WithDescription("Leases that have not ended."))),
		waiters: made(m.Int64ObservableUpDownCounter("dlock.acquire.waiters", metric.WithUnit("{call}"),
			metric.WithDescription("Calls that wait for a lock."))),
	}
	if reflect.ValueOf(provider).Comparable() {
		c.provider = provider
	}
	made(m.RegisterCallback(c.collect, c.oldest, c.leases, c.waiters))
	return c
}

// An observation has the values of the instruments at one time.
type observation struct {
	oldest          map[attribute.Set]time.Duration
	leases, waiters map[attribute.Set]int64
}

// collect is the callback of the instruments.
func (c *collector) collect(ctx context.Context, o metric.Observer) error {
	all, now := c.begin()
	for _, t := range all {
		t.beginCounters(ctx)
		t.addTo(now)
	}
	for server, age := range now.oldest {
		o.ObserveFloat64(c.oldest, age.Seconds(), metric.WithAttributeSet(server))
	}
	for set, n := range now.leases {
		o.ObserveInt64(c.leases, n, metric.WithAttributeSet(set))
	}
	for set, n := range now.waiters {
		o.ObserveInt64(c.waiters, n, metric.WithAttributeSet(set))
	}
	return nil
}

// begin returns the telemetry to collect from, and an observation of zeros.
func (c *collector) begin() (all []*telemetry, o *observation) {
	o = &observation{make(map[attribute.Set]time.Duration), make(map[attribute.Set]int64), make(map[attribute.Set]int64)}
	collectors.Lock()
	defer collectors.Unlock()
	replacePlaceholder()
	for self := range c.telemetry {
		if t := self.Value(); t != nil {
			all = append(all, t)
		}
	}
	for server := range c.servers {
		o.oldest[server] = 0
	}
	for set := range c.modes {
		o.leases[set], o.waiters[set] = 0, 0
	}
	return all, o
}

// addTo adds the values of t, by their attributes.
func (t *telemetry) addTo(o *observation) {
	server, now := attribute.NewSet(t.server...), time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range t.holds {
		o.oldest[server] = max(o.oldest[server], now.Sub(h.since))
	}
	for key, n := range t.counts {
		set := t.attrSet(key.name, key.shared)
		o.leases[set] += n.leases
		o.waiters[set] += max(n.waiters, 0) // a call may end before its wait is counted
	}
}
