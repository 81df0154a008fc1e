package keepalive

import (
	"math"
	"sync/atomic"
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
// believed. It may be read at any time; while it is set one of the two may still
// be the old one, which is earlier.
type deadline struct {
	running atomic.Int64 // a moment; never: there is no deadline
	wall    atomic.Int64 // in nanoseconds since 1970
}

// set makes it the time when the holder of h stops believing in it.
func (d *deadline) set(c clock, h *backend.Hold) {
	if h.Granted <= 0 {
		d.running.Store(int64(never))
		d.wall.Store(math.MaxInt64)
		return
	}
	lasts := h.Granted - backend.Margin(h.Granted)
	d.running.Store(int64(c.at(h.Sent)) + int64(lasts))
	d.wall.Store(h.Sent.UnixNano() + int64(lasts))
}

func (d *deadline) at() moment { return moment(d.running.Load()) }

func (d *deadline) passed(at moment, now time.Time) bool {
	return at >= d.at() || now.UnixNano() >= d.wall.Load()
}
