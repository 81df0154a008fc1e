package redis

import (
	"fmt"
	"time"
)

// An unacknowledgedError says that a request has taken effect on the master,
// but that it may be lost with that.
type unacknowledgedError struct{ got, want int }

func (e *unacknowledgedError) Error() string {
	return fmt.Sprintf("%d of the %d replicas that dlock.replicas asks for have acknowledged", e.got, e.want)
}

// acknowledgement is the command that waits for the replicas of all that a
// pipeline did before, on the same connection; nil if nothing in it is durable.
func (w *wire) acknowledgement(batch []*parcel) *parcel {
	var limit time.Duration
	for _, p := range batch {
		limit = max(limit, p.ack)
	}
	if limit == 0 {
		return nil
	}
	return newParcel([]any{"wait", w.replicas, limit.Milliseconds()})
}

// acknowledge tells the parcels of a pipeline what their replicas said.
func (w *wire) acknowledge(p *pipeline) {
	reply, err := p.ack.result()
	if got, _ := reply.(int64); err == nil && int(got) < w.replicas {
		err = &unacknowledgedError{int(got), w.replicas}
	}
	for _, one := range p.batch {
		if one.ack > 0 {
			one.lacks = err
		}
	}
}
