package backend

import (
	"testing"
	"time"
)

func TestRoundTripFollowsWhatItMeasures(t *testing.T) {
	const least, most = time.Millisecond, 3 * time.Second
	var r RoundTrip
	if got := r.Limit(least, most); got != most {
		t.Errorf("limit before the first exchange is %v, want %v", got, most)
	}
	for range 100 {
		r.Observe(100 * time.Microsecond)
	}
	if got := r.Limit(least, most); got != least {
		t.Errorf("limit near the server is %v, want %v", got, least)
	}
	r.Late()
	r.Late()
	if got := r.Limit(least, most); got != 4*least {
		t.Errorf("limit after two exchanges without an answer is %v, want %v", got, 4*least)
	}
	r = RoundTrip{}
	for i := range 100 {
		r.Observe(100*time.Millisecond + time.Duration(i%5)*10*time.Millisecond)
	}
	if got := r.Limit(least, most); got < 140*time.Millisecond || got > 300*time.Millisecond {
		t.Errorf("limit at 100 to 140 ms is %v", got)
	}
}

// A server that moves away, or the client, answers later than it did from then on.
func TestRoundTripFollowsAServerThatMovesAway(t *testing.T) {
	var r RoundTrip
	for range 100 {
		r.Observe(200 * time.Microsecond)
	}
	for range 100 {
		r.Observe(50 * time.Millisecond)
	}
	if got := r.Limit(time.Millisecond, 3*time.Second); got < 50*time.Millisecond || got > 200*time.Millisecond {
		t.Errorf("limit at 50 ms, which were 0.2 ms, is %v", got)
	}
}
