// Package inturn compares ways to do the same in a benchmark. They take turns, so
// that all of them see the same server and the same machine.
package inturn

import (
	"slices"
	"testing"
	"time"
)

// A Rival does the same as the others in its own way.
type Rival struct {
	Name string
	Run  func()
}

// Compare runs all rivals in turn, once before the clock starts. It reports the
// median of each in microseconds, and how many times as fast the first is as each
// other.
func Compare(b *testing.B, rivals ...Rival) {
	times := make([][]time.Duration, len(rivals))
	for _, r := range rivals {
		r.Run() // makes what is made once
	}
	for b.Loop() {
		for i, r := range rivals {
			start := time.Now()
			r.Run()
			times[i] = append(times[i], time.Since(start))
		}
	}
	ours := median(times[0])
	for i, r := range rivals {
		its := median(times[i])
		b.ReportMetric(float64(its.Microseconds()), "µs/"+r.Name)
		if i > 0 {
			b.ReportMetric(float64(its)/float64(ours), "×"+r.Name)
		}
	}
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}
