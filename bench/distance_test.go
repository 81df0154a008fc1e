package main

import (
	"io"
	"strings"
	"testing"
	"time"
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
			if cell := target.cell(r, trip); strings.Contains(cell, "not") {
				t.Errorf("%s by %s at %v is %s", target.what, target.by, trip, cell)
			}
		}
	}
}
