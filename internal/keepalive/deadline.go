package keepalive

import (
	"math"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A moment is a time by the monotonic clock, in nanoseconds since the keeper's
// start.
type moment int64

const never moment = math.MaxInt64

// A clock turns times into moments.
type clock struct{ start time.Time }

func (c clock) at(t time.Time) moment { return moment(t.Sub(c.start)) }

// until returns how long it is from now to m.
func (c clock) until(m moment, now time.Time) time.Duration { return time.Duration(m - c.at(now)) }

// A deadline is a moment by two clocks. The monotonic one stops while the
// machine sleeps, the wall clock can be set: the one that gets there first is
// believed.
type deadline struct {
	running moment // never: there is no deadline
	wall    int64  // in nanoseconds since 1970
}

// deadline is when the holder of h stops believing in it.
func (c clock) deadline(h *backend.Hold) deadline {
	if h.Granted <= 0 {
		return deadline{never, math.MaxInt64}
	}
	lasts := h.Granted - backend.Margin(h.Granted)
	return deadline{c.at(h.Sent) + moment(lasts), h.Sent.UnixNano() + int64(lasts)}
}

func (d deadline) passed(at moment, now time.Time) bool {
	return at >= d.running || now.UnixNano() >= d.wall
}

// within reports whether o is no earlier than d, and later by slack at most.
func (d deadline) within(slack time.Duration, o deadline) bool {
	return near(int64(d.running), int64(o.running), slack) && near(d.wall, o.wall, slack)
}

// near reports whether b is from a to a + slack. The difference may be more than
// an int64 holds.
func near(a, b int64, slack time.Duration) bool {
	return b >= a && uint64(b)-uint64(a) <= uint64(slack)
}
