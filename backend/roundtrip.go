package backend

import (
	"sync"
	"time"
)

// A RoundTrip estimates how long a server takes to answer, as TCP does for its
// retransmissions (RFC 6298). Limits for one exchange follow it, so that a
// distant server is not taken for a silent one. The zero value has measured
// nothing. It may be used concurrently.
type RoundTrip struct {
	mu                  sync.Mutex
	smoothed, deviation time.Duration
	late                int // exchanges without an answer since the last that had one
}

// Observe adds the duration of one exchange.
func (r *RoundTrip) Observe(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.late = 0
	if r.smoothed == 0 {
		r.smoothed, r.deviation = d, d/2
		return
	}
	r.deviation += ((r.smoothed - d).Abs() - r.deviation) / 4
	r.smoothed += (d - r.smoothed) / 8
}

// Late notes that an exchange had no answer within its limit. Each such note doubles
// the limit until the next answer: a server that is busy is given more time.
func (r *RoundTrip) Late() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.late = min(r.late+1, 10)
}

// Limit returns the time after which an answer is not to be expected any more:
// the estimate and four deviations, within least and most, which must be less than
// an hour. It is most while nothing has been measured.
func (r *RoundTrip) Limit(least, most time.Duration) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.smoothed == 0 {
		return most
	}
	return min(max(r.smoothed+4*r.deviation, least)<<r.late, most)
}
