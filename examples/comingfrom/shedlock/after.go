package shedlock

import (
	"context"
	"time"

	"github.com/dlock-go/dlock"
)

// A Job runs on one machine at a time.
type Job struct {
	Name    string
	AtMost  time.Duration // lockAtMostFor
	AtLeast time.Duration // lockAtLeastFor; may be 0
}

func (j Job) mutex(client *dlock.Client) *dlock.Mutex {
	options := []dlock.Option{dlock.WithMaxHold(j.AtMost)}
	if j.AtLeast > 0 {
		options = append(options, dlock.WithMinHold(j.AtLeast))
	}
	return client.Mutex(j.Name, options...)
}

// After runs the job once no Java program runs it any more. It is dlock.ErrHeld if
// somebody else does.
func After(ctx context.Context, client *dlock.Client, job Job, work func(context.Context) error) error {
	return dlock.TryDo(ctx, job.mutex(client), func(ctx context.Context, _ *dlock.Lease) error {
		return work(ctx)
	})
}
