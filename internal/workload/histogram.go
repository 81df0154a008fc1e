package workload

import (
	"math/bits"
	"time"
)

// A histogram counts durations in buckets that are an eighth of a power of two
// wide, so that a quantile is right to within 7 %. The zero value is empty.
type histogram struct {
	counts [512]uint64
	total  uint64
	max    time.Duration
}

const (
	stepBits = 3
	steps    = 1 << stepBits
)

// bucket is the place of d: below 2*steps each nanosecond has its own.
func bucket(d time.Duration) int {
	n := uint64(max(d, 0))
	if n < 2*steps {
		return int(n)
	}
	shift := bits.Len64(n) - stepBits - 1
	return shift*steps + int(n>>shift)
}

// middle is the duration that stands for a bucket.
func middle(bucket int) time.Duration {
	if bucket < 2*steps {
		return time.Duration(bucket)
	}
	shift := bucket/steps - 1
	low := uint64(bucket%steps+steps) << shift
	return time.Duration(low + 1<<shift/2)
}

func (h *histogram) add(d time.Duration) {
	h.counts[bucket(d)]++
	h.total++
	h.max = max(h.max, d)
}

func (h *histogram) merge(other *histogram) {
	for i, n := range other.counts {
		h.counts[i] += n
	}
	h.total += other.total
	h.max = max(h.max, other.max)
}

// quantile returns the value that the part q of all does not exceed.
func (h *histogram) quantile(q float64) time.Duration {
	left := uint64(q * float64(h.total))
	for i, n := range h.counts {
		if n > left {
			return min(middle(i), h.max)
		}
		left -= n
	}
	return h.max
}

// distribution is the histogram as quantiles that suit a chart with a long tail.
func (h *histogram) distribution() []Quantile {
	if h.total == 0 {
		return nil
	}
	var out []Quantile
	for _, q := range []float64{0, .01, .05, .1, .2, .3, .4, .5, .6, .7, .8, .9, .95, .99, .995, .999, .9999, 1} {
		out = append(out, Quantile{q, micros(h.quantile(q))})
	}
	return out
}
