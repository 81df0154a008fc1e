package renewal

import (
	"math"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A moment is a time by the monotonic clock, in nanoseconds since the keeper's
// start.
type moment int64

const never moment = math.MaxInt64

// An instant is one time by both clocks.
type instant struct {
	at   moment
	wall int64 // in nanoseconds since 1970
}

// A clock reads times by the monotonic clock and by the wall clock.
type clock struct {
	start time.Time
	wall  func(time.Time) int64
}

func newClock() clock { return clock{time.Now(), time.Time.UnixNano} }

func (c clock) at(t time.Time) moment { return moment(t.Sub(c.start)) }

func (c clock) instant(t time.Time) instant { return instant{c.at(t), c.wall(t)} }

func (c clock) now() instant { return c.instant(time.Now()) }

// ahead is how far the wall clock is from where the monotonic one has it. It grows
// when the machine sleeps and when the wall clock is set.
func (c clock) ahead(now instant) time.Duration {
	return time.Duration(now.wall - c.start.UnixNano() - int64(now.at))
}

// A deadline is a moment by two clocks. The monotonic one stops while the
// machine sleeps, the wall clock can be set: the one that gets there first is
// believed.
type deadline struct {
	running moment // never: there is no deadline
	wall    int64
}

// deadline is when the holder of h stops believing in it.
func (c clock) deadline(h *backend.Hold) deadline {
	if h.Granted == 0 {
		return deadline{never, math.MaxInt64}
	}
	lasts, sent := h.Granted-backend.Margin(h.Granted), c.instant(h.Sent)
	return deadline{sent.at + moment(lasts), sent.wall + int64(lasts)}
}

func (d deadline) passed(now instant) bool { return now.at >= d.running || now.wall >= d.wall }

// until is when d passes, if from now on both clocks run alike.
func (d deadline) until(now instant) moment {
	if d.running == never {
		return never
	}
	return min(d.running, now.at+moment(d.wall-now.wall))
}

// within reports whether o is no earlier than d, and later by tolerance at most.
func (d deadline) within(tolerance time.Duration, o deadline) bool {
	return near(int64(d.running), int64(o.running), tolerance) && near(d.wall, o.wall, tolerance)
}

// near reports whether b is from a to a + tolerance. The difference may be more than
// an int64 holds.
func near(a, b int64, tolerance time.Duration) bool {
	return b >= a && uint64(b)-uint64(a) <= uint64(tolerance)
}
