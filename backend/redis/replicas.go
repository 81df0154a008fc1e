package redis

import (
	"context"
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
func (p *pipeliner) acknowledgement(batch []*command) *command {
	var limit time.Duration
	for _, c := range batch {
		limit = max(limit, c.ack)
	}
	if limit == 0 {
		return nil
	}
	return newCommand(context.Background(), []any{"wait", p.replicas, limit.Milliseconds()})
}

// acknowledge tells the commands of a pipeline what their replicas said.
func (p *pipeliner) acknowledge(batch []*command, ack *command) {
	reply, err := ack.result()
	if got, _ := reply.(int64); err == nil && int(got) < p.replicas {
		err = &unacknowledgedError{int(got), p.replicas}
	}
	for _, c := range batch {
		if c.ack > 0 {
			c.lacks = err
		}
	}
}
