package dlockotel

import (
	"context"
	"reflect"
	"runtime"
	"sync"
	"time"
	"weak"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// The age of the oldest lease is a gauge that is asked for. Of several callbacks that say
// something of the same attributes the meter would believe one: there is one callback for
// each meter provider, for all the telemetry that goes there. It must not keep telemetry
// that nobody uses any more.

// watchers are those of the meter providers that are in use.
var watchers = struct {
	sync.Mutex
	byProvider map[any]*watcher
}{byProvider: make(map[any]*watcher)}

// A watcher tells one meter provider of the oldest leases. The mutex of watchers guards it.
type watcher struct {
	key          any                 // of byProvider
	registration metric.Registration // nil: the provider has failed
	gauge        metric.Float64ObservableGauge
	all          map[weak.Pointer[telemetry]]struct{}
}

// watchOldest has the oldest lease of t be told to its meter provider, until nobody refers
// to t.
func (t *telemetry) watchOldest(m metric.Meter) {
	watchers.Lock()
	defer watchers.Unlock()
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
	runtime.AddCleanup(t, func(self weak.Pointer[telemetry]) { w.forget(self) }, self)
}

// newWatcher makes the gauge. What fails goes to the global error handler.
func newWatcher(m metric.Meter) *watcher {
	w := &watcher{all: make(map[weak.Pointer[telemetry]]struct{})}
	var err error
	w.gauge, err = m.Float64ObservableGauge("dlock.lease.oldest", metric.WithUnit("s"),
		metric.WithDescription("How long the oldest lease has lasted that has not ended."))
	if err == nil {
		w.registration, err = m.RegisterCallback(w.observe, w.gauge)
	}
	if err != nil {
		otel.Handle(err)
	}
	return w
}

// observe tells of the oldest lease of each server. It also begins the counters: a provider
// that is made the global one after the hooks drops what was added before.
func (w *watcher) observe(_ context.Context, o metric.Observer) error {
	oldest := make(map[attribute.Set]time.Duration)
	for _, t := range w.live() {
		t.begin.Do(t.beginAll)
		server := attribute.NewSet(t.server...)
		oldest[server] = max(oldest[server], t.oldest())
	}
	for server, age := range oldest {
		o.ObserveFloat64(w.gauge, age.Seconds(), metric.WithAttributeSet(server))
	}
	return nil
}

func (w *watcher) live() (all []*telemetry) {
	watchers.Lock()
	defer watchers.Unlock()
	for self := range w.all {
		if t := self.Value(); t != nil {
			all = append(all, t)
		}
	}
	return all
}

// forget ends the watch when there is no telemetry left for it.
func (w *watcher) forget(self weak.Pointer[telemetry]) {
	watchers.Lock()
	delete(w.all, self)
	last := len(w.all) == 0
	if last {
		delete(watchers.byProvider, w.key)
	}
	watchers.Unlock()
	if last && w.registration != nil {
		if err := w.registration.Unregister(); err != nil { // without the mutex, for which a callback may wait
			otel.Handle(err)
		}
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
