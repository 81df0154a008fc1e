package dlock

import (
	"log/slog"
	"time"
)

// Hooks are functions that a client calls when something happens to one of its
// locks, for metrics and traces. Each may be nil. They are called without any
// lock of the client held, from the goroutine that the event happened in, and Lost
// from one for all that are lost together. They must be safe for concurrent use and
// should return quickly: Renewed holds up the renewal of other locks, and Lost the
// report of others. A hook that calls Client.Close, or Unlock from Renewed, does so in
// another goroutine: they wait for what has called the hook. A hook that panics leaves
// the lock as if it had not been called, and panics on: in the call for which it was
// called, or, as Lost and Renewed are called for none, in a goroutine that ends the
// program.
type Hooks struct {
	// Waiting: a call did not get the lock at once and waits for it.
	Waiting func(Event)

	// Acquired: a call has entered the lock. Waited says how long it took.
	Acquired func(Event)

	// Renewed: a hold was renewed. Left says how much of the lease was left,
	// which is the measure to watch: it falls before locks are lost.
	Renewed func(Event)

	// Lost: a hold is over that nobody unlocked. Err says why.
	Lost func(Event)

	// Released: a hold was given back. Held says how long it lasted; Err is
	// not nil if the server could not be told yet.
	Released func(Event)
}

// An Event is what a hook is told. Fields that do not fit the event are zero.
type Event struct {
	Name   string
	Shared bool
	Token  uint64
	Nested bool          // the lock was entered again, not taken anew
	Waited time.Duration // from the call to the entry
	Held   time.Duration // from the entry to the release or loss
	Left   time.Duration // of the lease, when the renewal was answered
	Err    error
}

// complain logs what no caller is told.
func (c *Client) complain(msg, name string, cause error) {
	c.log.Warn("dlock: "+msg, slog.String("lock", name), slog.Any("cause", cause))
}

// practicalTTL is the least TTL that a busy machine can keep.
const practicalTTL = 100 * time.Millisecond

func (c *Client) warnOfShortTTL() {
	c.log.Warn("dlock: a TTL below 100ms is lost on a busy machine", slog.Duration("least", practicalTTL))
}
