package dlock

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/renewal"
)

// The attributes of what is logged are those of the metrics and spans of package
// dlockotel, so that a line is found from a metric and the other way round.

// lockAttrs says which lock a line is about.
func lockAttrs(name string, shared bool, token uint64) []slog.Attr {
	mode := "exclusive"
	if shared {
		mode = "shared"
	}
	return []slog.Attr{slog.String("dlock.lock.name", name), slog.String("dlock.mode", mode), slog.Uint64("dlock.token", token)}
}

// withError adds the type and the text of err, if it is not nil.
func withError(attrs []slog.Attr, err error) []slog.Attr {
	if err == nil {
		return attrs
	}
	return append(attrs, slog.String("error.type", ErrorType(err)), slog.String("error", backend.OneLine(err)))
}

func (c *Client) logAttrs(level slog.Level, msg string, attrs []slog.Attr) {
	c.log.LogAttrs(context.Background(), level, "dlock: "+msg, attrs...)
}

// logAttrs returns the attributes of h.
func (h *hold) logAttrs() []slog.Attr {
	h.mu.Lock()
	defer h.mu.Unlock()
	return lockAttrs(h.lock.name, h.item.Hold.Mode == backend.Shared, h.item.Hold.Token)
}

// logLost logs that h is lost. That is an error, unless the program itself has asked for
// it with WithMaxHold.
func (h *hold) logLost(r *reason) {
	cause := lossCause(r.by)
	level := slog.LevelError
	if cause == LossMaxHold {
		level = slog.LevelWarn
	}
	attrs := append(h.logAttrs(), slog.String("dlock.cause", string(cause)))
	h.lock.client.logAttrs(level, "lock lost", withError(attrs, r.on(h.lock.name)))
}

func (h *hold) logUnconfirmedRelease(err error) {
	h.lock.client.logAttrs(slog.LevelWarn, "release not confirmed", withError(h.logAttrs(), err))
}

// logDropped logs that nobody can unlock e any more. That is a fault of the program.
func (e *entry) logDropped() {
	attrs := lockAttrs(e.lock.name, e.isShared(), e.fencingToken)
	e.lock.client.logAttrs(slog.LevelError, "lease dropped without Unlock, the lock stays held", attrs)
}

// logTermEnd logs what the function of a term of Lead has returned after its loss.
func (l *Lease) logTermEnd(err error) {
	attrs := lockAttrs(l.Name(), l.Shared(), l.of.token())
	l.of.life().lock.client.logAttrs(slog.LevelWarn, "term ended", withError(attrs, err))
}

// logsRenewals reports whether the logger takes warnings, as late renewals are.
func (c *Client) logsRenewals() bool { return c.log.Enabled(context.Background(), slog.LevelWarn) }

// isLate reports whether a hold with that lease was renewed late. Two thirds are left when
// all is well, less the margin of the deadline.
func isLate(l renewal.Lease) bool { return l.Left < l.Granted/2 }

// logRenewal logs an attempt at a renewal that was late or that failed with e.Err, if no
// other was logged lately: a server that is slow is slow for all locks.
func (c *Client) logRenewal(e RenewalFailedEvent) {
	if !c.logsRenewals() {
		return
	}
	skipped, ok := c.renewalLog.allow(time.Now())
	if !ok {
		return
	}
	msg := "lock not renewed yet"
	if e.Err == nil {
		msg = "lock renewed late"
	}
	attrs := append(lockAttrs(e.Name, e.Shared, e.Token), slog.Int("skipped", skipped))
	if e.TTL > 0 {
		attrs = append(attrs, slog.Duration("left", e.Left), slog.Duration("ttl", e.TTL))
	}
	attrs = withError(attrs, e.Err)
	c.janitor.Go(func(context.Context) { c.logAttrs(slog.LevelWarn, msg, attrs) }) // a slow logger holds up no renewal
}

// renewalLogPause is the time between two lines about renewals.
const renewalLogPause = 10 * time.Second

// A logLimit lets one line through in each renewalLogPause.
type logLimit struct {
	mu      sync.Mutex
	next    time.Time
	skipped int
}

// allow reports whether a line may be logged, and how many were not since the last.
func (l *logLimit) allow(now time.Time) (skipped int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Before(l.next) {
		l.skipped++
		return 0, false
	}
	skipped, l.skipped = l.skipped, 0
	l.next = now.Add(renewalLogPause)
	return skipped, true
}

// practicalTTL is the least TTL that a busy machine can keep.
const practicalTTL = 100 * time.Millisecond

func (c *Client) warnOfShortTTL() {
	c.log.Warn("dlock: a TTL below 100ms is lost on a busy machine", slog.Duration("least", practicalTTL))
}
