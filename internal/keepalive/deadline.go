package keepalive

import "time"

// farAway is when an item is looked at that neither is renewed nor ends.
var farAway = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// A deadline is a moment by two clocks. The monotonic one stops while the
// machine sleeps, the wall clock can be set: whichever has moved on further
// since the start is believed. The zero deadline never passes.
type deadline struct {
	from  time.Time
	after time.Duration
}

func (d deadline) passed(now time.Time) bool {
	return !d.from.IsZero() && elapsed(d.from, now) >= d.after
}

// at is the deadline by the monotonic clock, zero if there is none.
func (d deadline) at() time.Time {
	if d.from.IsZero() {
		return time.Time{}
	}
	return d.from.Add(d.after)
}

func elapsed(from, now time.Time) time.Duration {
	return max(now.Sub(from), now.Round(0).Sub(from.Round(0)))
}
