package dlock

import (
	"log/slog"
	"time"
)

// complain logs what no caller is told.
func (c *Client) complain(msg, name string, cause error) {
	c.log.Warn("dlock: "+msg, slog.String("lock", name), slog.Any("cause", cause))
}

// practicalTTL is the least TTL that a busy machine can keep.
const practicalTTL = 100 * time.Millisecond

func (c *Client) warnOfShortTTL() {
	c.log.Warn("dlock: a TTL below 100ms is lost on a busy machine", slog.Duration("least", practicalTTL))
}
