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
	AtLeast time.Duration // lockAtLeastFor
}

// After runs the job once no Java program runs it any more. It is dlock.ErrHeld if
// somebody else does.
func After(ctx context.Context, client *dlock.Client, job Job, work func(context.Context) error) error {
	mutex := client.Mutex(job.Name, dlock.WithMinHold(job.AtLeast), dlock.WithMaxHold(job.AtMost))
	return dlock.TryDo(ctx, mutex, func(ctx context.Context, _ *dlock.Lease) error {
		return work(ctx)
	})
}
