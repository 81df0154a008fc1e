package dlockotel

import (
	"context"
	"maps"
	"reflect"
	"runtime"
	"sync"
	"time"
	"weak"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Leases, waiters and the age of the oldest lease are asked for, not added up by the meter: a
// provider that is set later than a lease began would hear of its end alone. Of several
// callbacks that say something of the same attributes a meter would believe one: there is one
// callback for each meter provider, for all the telemetry that goes there. It must not keep
// telemetry that nobody uses any more.

// watchers are those of the meter providers that are in use.
var watchers = struct {
	sync.Mutex
	byProvider map[any]*watcher
}{byProvider: make(map[any]*watcher)}

// placeholder is the global provider until the program sets one, to which it then passes on
// what it is told.
var placeholder any = otel.GetMeterProvider()

// A watcher tells one meter provider what it asks for. The mutex of watchers guards it.
type watcher struct {
	key          any                 // of byProvider
	registration metric.Registration // nil: the provider has failed
	oldest       metric.Float64ObservableGauge
	leases       metric.Int64ObservableUpDownCounter
	waiters      metric.Int64ObservableUpDownCounter
	all          map[weak.Pointer[telemetry]]struct{}
}

// watch has t be told to its meter provider, until nobody refers to t.
func (t *telemetry) watch(m metric.Meter) {
	if !t.named {
		for _, of := range []map[countKey]int64{t.leases, t.waiters} {
			of[countKey{shared: false}], of[countKey{shared: true}] = 0, 0
		}
	}
	watchers.Lock()
	defer watchers.Unlock()
	settle()
	var key any = t.meters
	if !reflect.ValueOf(key).Comparable() {
		key = new(byte) // shared with nobody
	}
	w := watchers.byProvider[key]
	if w == nil {
		w = newWatcher(m)
		w.key, watchers.byProvider[key] = key, w
	}
	self := weak.Make(t)
	w.all[self] = struct{}{}
	runtime.AddCleanup(t, forget, self)
}

// settle has what goes to the placeholder be told by the watcher of the provider behind it,
// once there is one. The caller holds the mutex of watchers.
func settle() {
	var global any = otel.GetMeterProvider()
	early := watchers.byProvider[placeholder]
	if early == nil || global == placeholder || !reflect.ValueOf(global).Comparable() {
		return
	}
	w := watchers.byProvider[global]
	if w == nil {
		delete(watchers.byProvider, placeholder)
		early.key, watchers.byProvider[global] = global, early
		return
	}
	maps.Copy(w.all, early.all)
	clear(early.all)
}

// newWatcher makes the instruments. What fails goes to the global error handler.
func newWatcher(m metric.Meter) *watcher {
	w := &watcher{
		all: make(map[weak.Pointer[telemetry]]struct{}),
		oldest: made(m.Float64ObservableGauge("dlock.lease.oldest", metric.WithUnit("s"),
			metric.WithDescription("How long the oldest lease has lasted that has not ended."))),
		leases: made(m.Int64ObservableUpDownCounter("dlock.lease.active", metric.WithUnit("{lease}"),
			metric.WithDescription("Leases that have not ended."))),
		waiters: made(m.Int64ObservableUpDownCounter("dlock.acquire.waiters", metric.WithUnit("{call}"),
			metric.WithDescription("Calls that wait for a lock."))),
	}
	w.registration = made(m.RegisterCallback(w.observe, w.oldest, w.leases, w.waiters))
	return w
}

// observe tells what is asked for. It also begins the counters: a provider that is made the
// global one after the hooks drops what was added before.
func (w *watcher) observe(_ context.Context, o metric.Observer) error {
	oldest := make(map[attribute.Set]time.Duration)
	leases, waiters := make(map[attribute.Set]int64), make(map[attribute.Set]int64)
	for _, t := range w.live() {
		t.begin.Do(t.beginAll)
		t.addTo(oldest, leases, waiters)
	}
	for server, age := range oldest {
		o.ObserveFloat64(w.oldest, age.Seconds(), metric.WithAttributeSet(server))
	}
	for set, n := range leases {
		o.ObserveInt64(w.leases, n, metric.WithAttributeSet(set))
	}
	for set, n := range waiters {
		o.ObserveInt64(w.waiters, n, metric.WithAttributeSet(set))
	}
	return nil
}

func (w *watcher) live() (all []*telemetry) {
	watchers.Lock()
	defer watchers.Unlock()
	settle()
	for self := range w.all {
		if t := self.Value(); t != nil {
			all = append(all, t)
		}
	}
	return all
}

// forget ends the watch of self, and its watcher's if there is no telemetry left for it.
func forget(self weak.Pointer[telemetry]) {
	if w := removeTelemetry(self); w != nil && w.registration != nil {
		if err := w.registration.Unregister(); err != nil { // without the mutex, for which a callback may wait
			otel.Handle(err)
		}
	}
}

// removeTelemetry returns the watcher that watches nothing now, or nil.
func removeTelemetry(self weak.Pointer[telemetry]) *watcher {
	watchers.Lock()
	defer watchers.Unlock()
	for _, w := range watchers.byProvider {
		if _, ok := w.all[self]; !ok {
			continue
		}
		if delete(w.all, self); len(w.all) > 0 {
			return nil
		}
		delete(watchers.byProvider, w.key)
		return w
	}
	return nil
}

// addTo adds what t knows, by the attributes under which it is told.
func (t *telemetry) addTo(oldest map[attribute.Set]time.Duration, leases, waiters map[attribute.Set]int64) {
	server, age := attribute.NewSet(t.server...), t.oldest()
	oldest[server] = max(oldest[server], age)
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, n := range t.leases {
		leases[t.attrSet(key.name, key.shared)] += n
	}
	for key, n := range t.waiters {
		waiters[t.attrSet(key.name, key.shared)] += n
	}
}

// oldest returns the age of the oldest lease, 0 if there is none.
func (t *telemetry) oldest() (age time.Duration) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range t.holds {
		age = max(age, now.Sub(h.since))
	}
	return age
}
