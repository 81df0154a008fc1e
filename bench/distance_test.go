package main

import (
	"io"
	"slices"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/workload"
)

// Everybody goes through every workload at a distance for a moment, and each target
// finds what it asks for.
func TestEveryContenderAtADistance(t *testing.T) {
	z := quick
	z.RaceTTL = 5 * time.Second // what a peer waits for that has missed a message
	trips := distances[:2]
	r, err := compareByDistance(t.Context(), grounds, trips, z, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range r.Records {
		if rec.Error != "" {
			t.Errorf("%s, %s at %v: %s", rec.Workload, rec.Contender, rec.RoundTrip, rec.Error)
		}
		checkRecord(t, rec.record)
	}
	for _, target := range distanceTargets {
		for _, trip := range trips {
			if !measured(r, trip, target.what, target.who, target.metric) {
				t.Errorf("%s at %v: nothing of %s", target.what, trip, target.who)
			}
			what, metric := target.what, target.metric
			if target.request {
				what, metric = alone, workload.Rate
			}
			if !measured(r, trip, what, target.by, metric) {
				t.Errorf("%s at %v: nothing of %s", what, trip, target.by)
			}
		}
	}
}

// measured says whether there is a figure. One of zero counts: somebody who hands nothing over may
// have every lock of a run as short as this.
func measured(r *distanceReport, trip time.Duration, what, who string, m workload.Metric) bool {
	return slices.ContainsFunc(r.Records, func(rec distanceRecord) bool {
		_, known := rec.Figures[m]
		return known && rec.RoundTrip == trip && rec.Workload == what && rec.Contender == who
	})
}
