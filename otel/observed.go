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

// watchers are those of the meter providers that are in use. A provider keeps its watcher as
// part of the callback, and nothing here keeps either.
var watchers struct {
	sync.Mutex
	all []weak.Pointer[watcher]
}

// placeholder is the global provider until the program sets one, to which it then passes on
// what it is told.
var placeholder = otel.GetMeterProvider()

// A watcher tells one meter provider what it asks for. The mutex of watchers guards it.
type watcher struct {
	provider metric.MeterProvider // nil: it cannot be compared, and has a watcher for each telemetry
	oldest   metric.Float64ObservableGauge
	leases   metric.Int64ObservableUpDownCounter
	waiters  metric.Int64ObservableUpDownCounter
	watched
}

// watched is what a watcher tells of.
type watched struct {
	telemetry map[weak.Pointer[telemetry]]struct{} // that is in use

	// Attributes without names that were told of once: they are told of as long as there is
	// the provider, which keeps them in other metrics anyway.
	servers map[attribute.Set]struct{}
	modes   map[attribute.Set]struct{} // of each server
}

func newWatched() watched {
	return watched{
		telemetry: make(map[weak.Pointer[telemetry]]struct{}),
		servers:   make(map[attribute.Set]struct{}),
		modes:     make(map[attribute.Set]struct{}),
	}
}

// watch has the watcher of t's meter provider tell of t, until nobody refers to t.
func (t *telemetry) watch(m metric.Meter) {
	found := knownWatcher(t.meters)
	if found == nil {
		found = newWatcher(t.meters, m)
	}
	watchers.Lock()
	defer watchers.Unlock()
	settle()
	w := watcherOf(t.meters)
	if w == nil {
		w = found
		watchers.all = append(watchers.all, weak.Make(w))
	} // else a new one that was made here came second, and tells nothing
	w.servers[attribute.NewSet(t.server...)] = struct{}{}
	if !t.named {
		for _, shared := range []bool{false, true} {
			w.modes[t.attrSet("", shared)] = struct{}{}
			t.counts[countKey{shared: shared}] = lockCounts{}
		}
	}
	self := weak.Make(t)
	w.telemetry[self] = struct{}{}
	runtime.AddCleanup(t, forget, self)
}

// forget ends the watch of self, to which nobody refers any more.
func forget(self weak.Pointer[telemetry]) {
	watchers.Lock()
	defer watchers.Unlock()
	for _, one := range watchers.all {
		if w := one.Value(); w != nil {
			delete(w.telemetry, self)
		}
	}
}

// knownWatcher returns the watcher of a provider, nil if there is none yet.
func knownWatcher(provider metric.MeterProvider) *watcher {
	watchers.Lock()
	defer watchers.Unlock()
	settle()
	return watcherOf(provider)
}

// watcherOf returns the watcher of a provider, nil if there is none. The caller holds the
// mutex of watchers.
func watcherOf(provider metric.MeterProvider) *watcher {
	watchers.all = slices.DeleteFunc(watchers.all, func(one weak.Pointer[watcher]) bool { return one.Value() == nil })
	if !reflect.ValueOf(provider).Comparable() {
		return nil
	}
	for _, one := range watchers.all {
		if w := one.Value(); w != nil && w.provider == provider {
			return w
		}
	}
	return nil
}

// settle has what goes to the placeholder be told by the watcher of the provider behind it,
// once there is one. The caller holds the mutex of watchers.
func settle() {
	global, early := otel.GetMeterProvider(), watcherOf(placeholder)
	if early == nil || !reflect.ValueOf(global).Comparable() || global == placeholder {
		return
	}
	w := watcherOf(global)
	if w == nil {
		early.provider = global
		return
	}
	maps.Copy(w.telemetry, early.telemetry)
	maps.Copy(w.servers, early.servers)
	maps.Copy(w.modes, early.modes)
	early.watched = newWatched()
}

// newWatcher makes the instruments. What fails goes to the global error handler. The caller
// does not hold the mutex of watchers: the SDK registers a callback when no reader reads, and a
// reader waits for that mutex in observe.
func newWatcher(provider metric.MeterProvider, m metric.Meter) *watcher {
	w := &watcher{
		watched: newWatched(),
		oldest: made(m.Float64ObservableGauge("dlock.lease.oldest", metric.WithUnit("s"),
			metric.WithDescription("How long the oldest lease has lasted that has not ended."))),
		leases: made(m.Int64ObservableUpDownCounter("dlock.lease.active", metric.WithUnit("{lease}"),
			metric.WithDescription("Leases that have not ended."))),
		waiters: made(m.Int64ObservableUpDownCounter("dlock.acquire.waiters", metric.WithUnit("{call}"),
			metric.WithDescription("Calls that wait for a lock."))),
	}
	if reflect.ValueOf(provider).Comparable() {
		w.provider = provider
	}
	made(m.RegisterCallback(w.observe, w.oldest, w.leases, w.waiters))
	return w
}

// An observation is what a watcher tells at one time.
type observation struct {
	oldest          map[attribute.Set]time.Duration
	leases, waiters map[attribute.Set]int64
}

func (w *watcher) observe(ctx context.Context, o metric.Observer) error {
	all, now := w.begin()
	for _, t := range all {
		t.beginCounters(ctx)
		t.addTo(now)
	}
	for server, age := range now.oldest {
		o.ObserveFloat64(w.oldest, age.Seconds(), metric.WithAttributeSet(server))
	}
	for set, n := range now.leases {
		o.ObserveInt64(w.leases, n, metric.WithAttributeSet(set))
	}
	for set, n := range now.waiters {
		o.ObserveInt64(w.waiters, n, metric.WithAttributeSet(set))
	}
	return nil
}

// begin returns the telemetry to be told of, and an observation that says nothing but zeros.
func (w *watcher) begin() (all []*telemetry, o *observation) {
	o = &observation{make(map[attribute.Set]time.Duration), make(map[attribute.Set]int64), make(map[attribute.Set]int64)}
	watchers.Lock()
	defer watchers.Unlock()
	settle()
	for self := range w.telemetry {
		if t := self.Value(); t != nil {
			all = append(all, t)
		}
	}
	for server := range w.servers {
		o.oldest[server] = 0
	}
	for set := range w.modes {
		o.leases[set], o.waiters[set] = 0, 0
	}
	return all, o
}

// addTo adds what t knows, by the attributes under which it is told.
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
		o.waiters[set] += max(n.waiters, 0) // a call may end before its wait is told
	}
}
