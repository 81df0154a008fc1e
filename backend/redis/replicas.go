package redis

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// An unacknowledgedError says that a request has taken effect on the master,
// but that it may be lost with that.
type unacknowledgedError struct{ got, want int }

func (e *unacknowledgedError) Error() string {
	return fmt.Sprintf("%d of the %d replicas that dlock.replicas asks for have acknowledged", e.got, e.want)
}

// acknowledgement is the command that waits for the replicas of all that a
// pipeline did before, on the same connection; nil if nothing in it is durable.
func (w *wire) acknowledgement(batch []*parcel) *redis.Cmd {
	var limit time.Duration
	for _, p := range batch {
		limit = max(limit, p.ack)
	}
	if limit == 0 {
		return nil
	}
	return redis.NewCmd(context.Background(), "wait", w.replicas, limit.Milliseconds())
}

// acknowledge tells the parcels of a pipeline what their replicas said.
func (w *wire) acknowledge(batch []*parcel, ack *redis.Cmd) {
	got, err := ack.Int()
	if err == nil && got < w.replicas {
		err = &unacknowledgedError{got, w.replicas}
	}
	for _, p := range batch {
		if p.ack > 0 {
			p.err = err
		}
	}
}
