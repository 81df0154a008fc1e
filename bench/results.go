package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/dlock-go/dlock/internal/workload"
)

// save writes the report with one record on each line. Distributions and shares
// are left out: their figures are in.
func (r *report) save(path string) error {
	head := *r
	head.Records = nil
	text, err := json.MarshalIndent(head, "", " ")
	if err != nil {
		return err
	}
	text, _ = bytes.CutSuffix(text, []byte("null\n}"))
	var b bytes.Buffer
	b.Write(text)
	for i, rec := range r.Records {
		rec.Locks, rec.Passes, rec.Shares = nil, nil, nil
		line, err := json.Marshal(rec)
		if err != nil {
			return err
		}
		before := ",\n  "
		if i == 0 {
			before = "[\n  "
		}
		b.WriteString(before)
		b.Write(line)
	}
	b.WriteString("\n ]\n}\n")
	return os.WriteFile(path, b.Bytes(), 0o644)
}

func load(path string) (*report, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := &report{}
	return r, json.Unmarshal(text, r)
}

// keepOthers takes over from the results at path what r has no part of, if they
// are from the same machine with the same versions and contenders.
func (r *report) keepOthers(path string) {
	old, err := load(path)
	if err != nil || old.Machine != r.Machine || !maps.Equal(old.Versions, r.Versions) {
		return
	}
	mine := r.Sittings[0].Workloads
	for _, s := range old.Sittings {
		s.Workloads = slices.DeleteFunc(s.Workloads, func(id string) bool { return slices.Contains(mine, id) })
		if len(s.Workloads) > 0 {
			r.Sittings = append(r.Sittings, s)
		}
	}
	for _, rec := range old.Records {
		if !slices.Contains(mine, rec.key()) {
			r.Records = append(r.Records, rec)
		}
	}
}

// measured says whether a workload, or a point of a series, is in the results.
func (r *report) measured(id string) bool {
	return slices.ContainsFunc(r.Records, func(rec record) bool { return rec.Workload == id })
}

// Took says how long it was at work.
func (r *report) Took() string {
	var sum time.Duration
	for _, s := range r.Sittings {
		sum += s.Took
	}
	text := sum.Round(time.Second).String()
	if n := len(r.Sittings); n > 1 {
		text += fmt.Sprintf(", in %d sittings", n)
	}
	return text
}

// failures are the records that tell of an error, and those of this library that
// tell of a lock that did not guard.
func (r *report) failures() error {
	var errs []error
	for _, rec := range r.Records {
		if rec.Error != "" {
			errs = append(errs, fmt.Errorf("%s, %s, %d: %s", rec.Workload, rec.Contender, rec.X, rec.Error))
		}
		bad := rec.Figures[workload.Violations] + rec.Figures[workload.Lost]
		if bad > 0 && r.of(rec.Contender).Role == ours {
			errs = append(errs, fmt.Errorf("%s, %s: %v violations or losses", rec.Workload, rec.Contender, bad))
		}
	}
	return errors.Join(errs...)
}

func (r *report) of(name string) about {
	for _, a := range r.About {
		if a.Name == name {
			return a
		}
	}
	return about{}
}

// A spread is the middle of several rounds, and their least and greatest.
type spread struct {
	mid, low, high float64
	rounds         int
}

func spreadOf(values []float64) spread {
	if len(values) == 0 {
		return spread{}
	}
	v := slices.Sorted(slices.Values(values))
	mid := v[len(v)/2]
	if len(v)%2 == 0 {
		mid = (v[len(v)/2-1] + v[len(v)/2]) / 2
	}
	return spread{mid, v[0], v[len(v)-1], len(v)}
}

// figure is a metric of a contender over all rounds.
func (r *report) figure(id, contender string, m workload.Metric) spread {
	var values []float64
	for _, rec := range r.Records {
		if v, known := rec.Figures[m]; known && rec.Workload == id && rec.Contender == contender {
			values = append(values, v)
		}
	}
	return spreadOf(values)
}

// total sums a metric over all rounds.
func (r *report) total(id, contender string, m workload.Metric) (sum float64) {
	for _, rec := range r.Records {
		if rec.Workload == id && rec.Contender == contender {
			sum += rec.Figures[m]
		}
	}
	return sum
}

// ratio is a metric of one contender by that of another in the same round.
func (r *report) ratio(id string, m workload.Metric, a, b string) spread {
	byRound := make(map[int]float64)
	for _, rec := range r.Records {
		if v := rec.Figures[m]; rec.Workload == id && rec.Contender == b && v > 0 {
			byRound[rec.Round] = v
		}
	}
	var values []float64
	for _, rec := range r.Records {
		v, known := rec.Figures[m]
		if by, there := byRound[rec.Round]; known && there && rec.Workload == id && rec.Contender == a {
			values = append(values, v/by)
		}
	}
	return spreadOf(values)
}
