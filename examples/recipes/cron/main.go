// Command cron writes a report every night. It runs on several machines, and one of them
// writes it.
package main

import (
	"cmp"
	"context"
	"errors"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/dlock-go/dlock"
	_ "github.com/dlock-go/dlock/backend/redis" // or the backend that DLOCK_URL names
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	locks, err := dlock.Open(ctx, os.Getenv("DLOCK_URL"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(context.WithoutCancel(ctx))
	if err := run(ctx, locks, cmp.Or(os.Getenv("SCHEDULE"), "0 3 * * *"), writeReport); err != nil {
		log.Fatal(err)
	}
}

func writeReport(ctx context.Context) error {
	slog.Info("writing the report")
	return ctx.Err() // a real one looks at ctx now and then: it ends if the lock is lost
}

// run runs job by the schedule until ctx ends.
func run(ctx context.Context, locks *dlock.Client, schedule string, job func(context.Context) error) error {
	// The clocks of the machines differ by less than a minute, and runs are further apart.
	lock := locks.Mutex("cron/report", dlock.WithMinHold(time.Minute))
	jobs := cron.New(cron.WithLocation(time.UTC))
	if _, err := jobs.AddFunc(schedule, func() { runOnOneMachine(ctx, lock, job) }); err != nil {
		return err
	}
	jobs.Start()
	<-ctx.Done()
	<-jobs.Stop().Done() // when the job that runs has returned
	return nil
}

// runOnOneMachine runs job if no other machine does, or has within the minimum hold.
func runOnOneMachine(ctx context.Context, lock dlock.Locker, job func(context.Context) error) {
	err := dlock.TryDo(ctx, lock, func(ctx context.Context, _ *dlock.Lease) error { return job(ctx) })
	switch {
	case errors.Is(err, dlock.ErrHeld):
		slog.Info("the job runs, or has just run, on one of the machines")
	case errors.Is(err, dlock.ErrUnavailable):
		slog.Error("not run: nobody knows whether another machine runs the job", "err", err)
	case errors.Is(err, dlock.ErrLost):
		slog.Error("stopped: another machine may run the job by now", "err", err)
	case err != nil:
		slog.Error("the job has failed", "err", err)
	}
}
