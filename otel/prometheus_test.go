package dlockotel_test

import (
	"encoding/json"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	dlockotel "github.com/dlock-go/dlock/otel"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.opentelemetry.io/otel/attribute"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
)

// A family is a metric as Prometheus has it: its labels by name, and the values of each.
type family map[string][]string

// prometheusFamilies makes each metric of this module appear, and returns what
// Prometheus reads of them: by the names that a query uses.
func prometheusFamilies(t *testing.T) map[string]family {
	registry := prometheus.NewRegistry()
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry))
	if err != nil {
		t.Fatal(err)
	}
	hooks := dlockotel.Hooks(dlockotel.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(exporter))))
	ctx := t.Context()
	hooks.Waiting(ctx, dlock.WaitingEvent{Name: "x"})
	for _, from := range []dlock.HandOver{dlock.LocalHandOver, dlock.RemoteHandOver} {
		hooks.Acquired(ctx, dlock.AcquiredEvent{Name: "x", Lease: 1, HandOver: from})
		hooks.Released(ctx, dlock.ReleasedEvent{Name: "x", Lease: 1, Err: dlock.ErrUnavailable})
	}
	for _, outcome := range []dlock.Outcome{dlock.OutcomeHeld, dlock.OutcomeCanceled, dlock.OutcomeFailed} {
		hooks.NotAcquired(ctx, dlock.NotAcquiredEvent{Op: "lock", Name: "x", Outcome: outcome, Err: dlock.ErrHeld})
	}
	hooks.Renewed(dlock.RenewedEvent{Name: "x", Left: time.Second, TTL: 2 * time.Second})
	hooks.RenewalFailed(dlock.RenewalFailedEvent{Name: "x", Err: dlock.ErrUnavailable})
	for _, cause := range []dlock.LossCause{dlock.LossExpired, dlock.LossMaxHold, dlock.LossBroken, dlock.LossTaken} {
		hooks.Acquired(ctx, dlock.AcquiredEvent{Name: "x", Lease: 1})
		hooks.Lost(dlock.LostEvent{Name: "x", Lease: 1, Cause: cause, Err: dlock.ErrLost})
	}
	gathered, err := registry.Gather()
	runtime.KeepAlive(hooks)
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]family)
	for _, f := range gathered {
		if !strings.HasPrefix(f.GetName(), "dlock_") {
			continue
		}
		labels := family{"job": nil, "instance": nil}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = append(labels[l.GetName()], l.GetValue())
			}
		}
		if f.GetType() == dto.MetricType_HISTOGRAM {
			all[f.GetName()+"_count"], all[f.GetName()+"_sum"] = labels, labels
			labels["le"] = nil
			all[f.GetName()+"_bucket"] = labels
		} else {
			all[f.GetName()] = labels
		}
	}
	return all
}

var (
	metricPattern  = regexp.MustCompile(`\b(dlock_\w+)(\{[^}]*\})?`)
	matcherPattern = regexp.MustCompile(`(\w+)(=~|!~|!=|=)"([^"]*)"`)
	byPattern      = regexp.MustCompile(`by \(([^)]*)\)`)
)

// checkQuery reports each metric, label and value of a query that does not exist, and
// returns the metrics.
func checkQuery(t *testing.T, query string, all map[string]family) (used []string) {
	t.Helper()
	by := byPattern.FindAllStringSubmatch(query, -1)
	for _, m := range metricPattern.FindAllStringSubmatch(byPattern.ReplaceAllString(query, ""), -1) {
		labels, ok := all[m[1]]
		if !ok {
			if !isLabel(all, m[1]) {
				t.Errorf("there is no metric %s: %s", m[1], query)
			}
			continue
		}
		used = append(used, m[1])
		for _, match := range matcherPattern.FindAllStringSubmatch(m[2], -1) {
			values, ok := labels[match[1]]
			if !ok || len(values) > 0 && !slices.Contains(values, match[3]) {
				t.Errorf("%s has no label %s that is %s: %s", m[1], match[1], match[3], query)
			}
		}
		for _, group := range by {
			for label := range strings.SplitSeq(group[1], ",") {
				if _, ok := labels[strings.TrimSpace(label)]; !ok {
					t.Errorf("%s has no label %s: %s", m[1], label, query)
				}
			}
		}
	}
	return used
}

func isLabel(all map[string]family, name string) bool {
	for _, labels := range all {
		if _, ok := labels[name]; ok {
			return true
		}
	}
	return false
}

// TestDashboard has each metric in the dashboard be one of the module's, and the other
// way round.
func TestDashboard(t *testing.T) {
	all := prometheusFamilies(t)
	text, err := os.ReadFile("dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr, LegendFormat string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	shown := make(map[string]bool)
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			used := checkQuery(t, target.Expr, all)
			if len(used) == 0 {
				t.Errorf("%s shows no metric", p.Title)
			}
			for _, name := range used {
				shown[baseName(name)] = true
			}
			checkQuery(t, target.LegendFormat, all)
		}
	}
	for name := range all {
		if !shown[baseName(name)] {
			t.Errorf("no panel shows %s", name)
		}
	}
}

func baseName(name string) string {
	for _, suffix := range []string{"_bucket", "_count", "_sum"} {
		name = strings.TrimSuffix(name, suffix)
	}
	return name
}

// TestAlerts has each metric and label in the alerts be one of the module's.
func TestAlerts(t *testing.T) {
	all := prometheusFamilies(t)
	text, err := os.ReadFile("alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	alerts := strings.Split(string(text), "- alert: ")[1:]
	if len(alerts) == 0 {
		t.Fatal("there are no alerts")
	}
	for _, alert := range alerts {
		name, rest, _ := strings.Cut(alert, "\n")
		_, rest, _ = strings.Cut(rest, "expr: ")
		query, rest, ok := strings.Cut(rest, "labels:")
		if !ok || len(checkQuery(t, query, all)) == 0 {
			t.Errorf("%s asks for no metric", name)
		}
		for _, label := range regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(rest, -1) {
			for _, group := range byPattern.FindAllStringSubmatch(query, -1) {
				if !strings.Contains(group[1], label[1]) {
					t.Errorf("%s says the label %s, by which it does not group", name, label[1])
				}
			}
		}
	}
}

// TestReadmeListsEachMetric has the README say what there is.
func TestReadmeListsEachMetric(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	p := newProbe(t)
	c, b := p.client(100 * time.Millisecond)
	lease := p.lock(c.Mutex("x"))
	b.Cut()
	<-lease.Done()
	b.Heal()
	for series := range p.metrics() {
		name, _, _ := strings.Cut(series, "{")
		if !strings.Contains(string(text), "| `"+name+"` |") {
			t.Errorf("the README does not list %s", name)
		}
	}
}

// TestReadmeListsEachSpanAttribute has the README name what is on the spans and links of calls
// and holds of all kinds. A multi-lock has no token.
func TestReadmeListsEachSpanAttribute(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	p := newProbe(t)
	c, b := p.client(100 * time.Millisecond)
	p.unlock(p.lock(c.Mutex("x")))
	multi := c.Multi([]string{"x", "y"})
	p.unlock(p.lock(multi))
	lost := p.lock(c.Mutex("x"))
	b.Cut()
	<-lost.Done()
	b.Heal()
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, span := range p.spans.GetSpans() {
		attrs := slices.Clone(span.Attributes)
		for _, link := range span.Links {
			attrs = append(attrs, link.Attributes...)
		}
		set := attribute.NewSet(attrs...)
		for _, a := range attrs {
			if !strings.Contains(string(text), "`"+string(a.Key)+"`") {
				t.Errorf("the README does not list %s, which %s has", a.Key, span.Name)
			}
		}
		name, _ := set.Value(dlockotel.NameKey)
		if _, ok := set.Value(dlockotel.TokenKey); ok == (name.AsString() == "x y") {
			t.Errorf("%s of %q: has a token: %v", span.Name, name.AsString(), ok)
		}
	}
}
