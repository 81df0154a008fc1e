package alerts

import (
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
)

const (
	scrape   = 15 * time.Second
	evaluate = 15 * time.Second
	lasts    = 2 * time.Hour
)

// A story is what a process does from the time 0 on, and when an alert must fire.
type story struct {
	name   string
	alert  string
	series []series

	// The alert fires first within these two, and at the latest by the third never again. If
	// they are 0 it never fires.
	from, until, over time.Duration
}

// between is 1 from the time at until then, and 0 at any other.
func between(at, then time.Duration) func(time.Duration) float64 {
	return func(now time.Duration) float64 {
		if now >= at && now < then {
			return 1
		}
		return 0
	}
}

// counting is a counter that grows by rate a second.
func counting(rate func(time.Duration) float64) func(time.Duration) float64 {
	return func(now time.Duration) (sum float64) {
		for at := time.Duration(0); at < now; at += time.Second {
			sum += rate(at)
		}
		return math.Floor(sum)
	}
}

func always(time.Duration) float64 { return 1 }

// once is a counter that grows by one at that time.
func once(at time.Duration) func(time.Duration) float64 { return between(at, math.MaxInt64) }

// times is f times n.
func times(n float64, f func(time.Duration) float64) func(time.Duration) float64 {
	return func(now time.Duration) float64 { return n * f(now) }
}

// except is 1 - f.
func except(f func(time.Duration) float64) func(time.Duration) float64 {
	return func(now time.Duration) float64 { return 1 - f(now) }
}

// histogram is the series of a histogram of values that are below low, or between middle and
// high. The functions say how many there are of each in a second.
func histogram(name, labels, low, middle, high string, inLow, inHigh func(time.Duration) float64) []series {
	both := func(now time.Duration) float64 { return inLow(now) + inHigh(now) }
	bucket := func(le string, f func(time.Duration) float64) series {
		return series{fmt.Sprintf("%s_bucket{%sle=%q}", name, labels, le), counting(f)}
	}
	return []series{
		bucket("0", func(time.Duration) float64 { return 0 }), bucket(low, inLow), bucket(middle, inLow), bucket(high, both), bucket("+Inf", both),
	}
}

var stories = []story{
	{
		name: "the first loss", alert: "DlockLeaseLost",
		series: []series{{`dlock_lease_losses_total{dlock_cause="expired"}`, once(time.Hour)}},
		from:   time.Hour, until: time.Hour + time.Minute, over: time.Hour + 6*time.Minute,
	},
	{
		name: "a hold that was as long as it may be", alert: "DlockLeaseLost",
		series: []series{{`dlock_lease_losses_total{dlock_cause="max_hold"}`, once(time.Hour)}},
	},
	{
		name: "no renewal succeeds for five minutes", alert: "DlockRenewalsFail",
		series: []series{
			{`dlock_renewals_total{dlock_outcome="failed"}`, counting(times(.1, between(time.Hour, time.Hour+5*time.Minute)))},
			{`dlock_renewals_total{dlock_outcome="renewed"}`, counting(times(.1, except(between(time.Hour, time.Hour+5*time.Minute))))},
		},
		from: time.Hour + 30*time.Second, until: time.Hour + 2*time.Minute, over: time.Hour + 6*time.Minute,
	},
	{
		name: "the first renewal fails, and none succeeds", alert: "DlockRenewalsFail",
		series: []series{
			{`dlock_renewals_total{dlock_outcome="failed"}`, once(time.Hour)},
			{`dlock_renewals_total{dlock_outcome="renewed"}`, times(0, always)},
		},
		from: time.Hour, until: time.Hour + 30*time.Second, over: time.Hour + 3*time.Minute,
	},
	{
		name: "a failure that heals", alert: "DlockRenewalsFail",
		series: []series{
			{`dlock_renewals_total{dlock_outcome="failed"}`, counting(between(time.Hour, time.Hour+20*time.Second))},
			{`dlock_renewals_total{dlock_outcome="renewed"}`, counting(times(.1, except(between(time.Hour, time.Hour+20*time.Second))))},
		},
	},
	{
		name: "renewals are late", alert: "DlockRenewalSlackLow",
		series: histogram("dlock_renewal_slack", "", "0.1", "0.6", "0.65", between(time.Hour, 90*time.Minute), always),
		from:   time.Hour + 5*time.Minute, until: time.Hour + 7*time.Minute, over: 93 * time.Minute,
	},
	{
		name: "renewals were late for a minute", alert: "DlockRenewalSlackLow",
		series: histogram("dlock_renewal_slack", "", "0.1", "0.6", "0.65", between(time.Hour, time.Hour+time.Minute), times(.1, always)),
	},
	{
		name: "calls fail", alert: "DlockCallsFail",
		series: []series{
			{`dlock_acquire_duration_seconds_count{dlock_outcome="failed"}`, counting(between(time.Hour, 80*time.Minute))},
			{`dlock_acquire_duration_seconds_count{dlock_outcome="acquired"}`, counting(times(3, always))},
		},
		from: time.Hour + 5*time.Minute, until: time.Hour + 7*time.Minute, over: 83 * time.Minute,
	},
	{
		name: "all calls failed for a minute", alert: "DlockCallsFail",
		series: []series{
			{`dlock_acquire_duration_seconds_count{dlock_outcome="failed"}`, counting(between(time.Hour, time.Hour+time.Minute))},
			{`dlock_acquire_duration_seconds_count{dlock_outcome="acquired"}`, counting(except(between(time.Hour, time.Hour+time.Minute)))},
		},
	},
	{
		name: "waits are long", alert: "DlockWaitsLong",
		series: histogram("dlock_acquire_duration_seconds", `dlock_outcome="acquired",`, "1", "30", "60", always, between(time.Hour, 90*time.Minute)),
		from:   time.Hour + 10*time.Minute, until: time.Hour + 13*time.Minute, over: 96 * time.Minute,
	},
	{
		name: "waits were long for a minute", alert: "DlockWaitsLong",
		series: histogram("dlock_acquire_duration_seconds", `dlock_outcome="acquired",`, "1", "30", "60", always, between(time.Hour, time.Hour+time.Minute)),
	},
	{
		name: "more and more wait", alert: "DlockWaitersGrow",
		series: []series{{"dlock_acquire_waiters{}", counting(between(time.Hour, 90*time.Minute))}},
		from:   time.Hour + 15*time.Minute, until: time.Hour + 17*time.Minute, over: 96 * time.Minute,
	},
	{
		name: "many began to wait at once", alert: "DlockWaitersGrow",
		series: []series{{"dlock_acquire_waiters{}", times(1000, once(time.Hour))}},
	},
	{
		name: "a lock is held for hours", alert: "DlockHeldForTooLong",
		series: []series{{"dlock_lease_oldest_seconds{}", func(now time.Duration) float64 {
			return max(now-10*time.Minute, 0).Seconds() * between(0, 90*time.Minute)(now)
		}}},
		from: 70 * time.Minute, until: 71 * time.Minute, over: 91 * time.Minute,
	},
}

// TestAlerts has each alert fire while something is wrong, and not when it is over.
func TestAlerts(t *testing.T) {
	rules := readRules(t)
	fires := make(map[string]bool)
	for _, s := range stories {
		t.Run(s.alert+"/"+s.name, func(t *testing.T) {
			rule, ok := rules[s.alert]
			if !ok {
				t.Fatal("there is no such alert")
			}
			firing := evaluateRule(t, rule, s.series)
			if s.until == 0 {
				if len(firing) > 0 {
					t.Errorf("fires from %v to %v", firing[0], firing[len(firing)-1])
				}
				return
			}
			fires[s.alert] = true
			if len(firing) == 0 {
				t.Fatal("does not fire")
			}
			if first, last := firing[0], firing[len(firing)-1]; first < s.from || first > s.until || last > s.over {
				t.Errorf("fires from %v to %v, want from %v at the earliest and %v at the latest, and not after %v", first, last, s.from, s.until, s.over)
			}
		})
	}
	for name := range rules {
		if !fires[name] {
			t.Errorf("nothing makes %s fire", name)
		}
	}
}

func readRules(t *testing.T) map[string]rulefmt.Rule {
	groups, errs := rulefmt.ParseFile("../../otel/alerts.yml", false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	for _, err := range errs {
		t.Fatal(err)
	}
	rules := make(map[string]rulefmt.Rule)
	for _, group := range groups.Groups {
		for _, rule := range group.Rules {
			rules[rule.Alert] = rule
		}
	}
	return rules
}

// evaluateRule returns when the alert fires: when its expression has had the same labels for
// as long as the rule says.
func evaluateRule(t *testing.T, rule rulefmt.Rule, all []series) (firing []time.Duration) {
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute})
	defer engine.Close()
	storage := store(t, all)
	since := make(map[string]time.Duration)
	for now := time.Duration(0); now < lasts; now += evaluate {
		query, err := engine.NewInstantQuery(t.Context(), storage, nil, rule.Expr, time.UnixMilli(now.Milliseconds()))
		if err != nil {
			t.Fatal(err)
		}
		result := query.Exec(t.Context())
		vector, err := result.Vector()
		if err != nil {
			t.Fatal(err)
		}
		active := make(map[string]bool)
		for _, sample := range vector {
			labels := sample.Metric.String()
			active[labels] = true
			if _, ok := since[labels]; !ok {
				since[labels] = now
			}
			if now-since[labels] >= time.Duration(rule.For) && !slices.Contains(firing, now) {
				firing = append(firing, now)
			}
		}
		query.Close()
		maps.DeleteFunc(since, func(labels string, _ time.Duration) bool { return !active[labels] })
	}
	return firing
}
