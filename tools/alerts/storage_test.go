package alerts

import (
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
)

// A series is a metric with labels, as in a query, and its value at each time.
type series struct {
	metric string
	value  func(time.Duration) float64
}

// store returns what a server would have that scrapes one process with those series.
func store(t *testing.T, all []series) storage.Queryable {
	var stored []promql.Series
	for _, s := range all {
		metric, err := parser.NewParser(parser.Options{}).ParseMetric(s.metric)
		if err != nil {
			t.Fatal(err)
		}
		b := labels.NewBuilder(metric)
		b.Set("job", "app").Set("instance", "app-1")
		one := promql.Series{Metric: b.Labels()}
		for now := time.Duration(0); now < lasts; now += scrape {
			one.Floats = append(one.Floats, promql.FPoint{T: now.Milliseconds(), F: s.value(now)})
		}
		stored = append(stored, one)
	}
	return queryable(stored)
}

func queryable(stored []promql.Series) storage.Queryable {
	return storage.QueryableFunc(func(mint, maxt int64) (storage.Querier, error) {
		return &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
			found := new(seriesSet)
			for _, s := range stored {
				if matches(s.Metric, matchers) {
					found.all = append(found.all, promql.NewStorageSeries(s))
				}
			}
			return found
		}}, nil
	})
}

func matches(metric labels.Labels, matchers []*labels.Matcher) bool {
	for _, m := range matchers {
		if !m.Matches(metric.Get(m.Name)) {
			return false
		}
	}
	return true
}

// A seriesSet goes through series.
type seriesSet struct {
	all  []storage.Series
	next int
}

// Next implements storage.SeriesSet.
func (s *seriesSet) Next() bool { s.next++; return s.next <= len(s.all) }

// At implements storage.SeriesSet.
func (s *seriesSet) At() storage.Series { return s.all[s.next-1] }

// Err implements storage.SeriesSet.
func (s *seriesSet) Err() error { return nil }

// Warnings implements storage.SeriesSet.
func (s *seriesSet) Warnings() annotations.Annotations { return nil }
