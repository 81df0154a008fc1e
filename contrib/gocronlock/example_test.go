package gocronlock_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"github.com/dlock-go/dlock"
	_ "github.com/dlock-go/dlock/backend/memory"
	"github.com/dlock-go/dlock/contrib/gocronlock"
)

func ExampleNewLocker() {
	ctx := context.Background()
	client, err := dlock.Open(ctx, "memory://", nil) // or redis://host:6379, ...
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)

	locker := gocronlock.NewLocker(client, dlock.WithMinHold(10*time.Second))
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
	if err != nil {
		log.Fatal(err)
	}
	defer scheduler.Shutdown()

	reported := make(chan struct{})
	report := func(ctx context.Context) error {
		lease := locker.Lease("report")
		ctx = lease.Context(ctx) // ends, with cause dlock.ErrLost, if the lock is lost
		defer close(reported)
		fmt.Println("no other machine writes the report")
		return ctx.Err()
	}
	_, err = scheduler.NewJob(
		gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()), // or gocron.CronJob("0 3 * * *", false), ...
		gocron.NewTask(report),
		gocron.WithName("report"),
		gocron.WithEventListeners(gocron.AfterLockError(func(_ uuid.UUID, job string, err error) {
			log.Printf("%s is skipped: %v", job, err)
		})),
	)
	if err != nil {
		log.Fatal(err)
	}
	scheduler.Start()
	<-reported
	// Output: no other machine writes the report
}

func ExampleNewElector() {
	ctx := context.Background()
	client, err := dlock.Open(ctx, "memory://", nil) // or redis://host:6379, ...
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)

	elector := gocronlock.NewElector(client, "scheduler")
	defer elector.Close(ctx)
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
	if err != nil {
		log.Fatal(err)
	}
	defer scheduler.Shutdown()

	cleaned := make(chan struct{}, 100)
	clean := func(ctx context.Context) error {
		ctx = elector.Lease().Context(ctx) // ends if this machine leads no longer
		cleaned <- struct{}{}
		return ctx.Err()
	}
	_, err = scheduler.NewJob(gocron.DurationJob(10*time.Millisecond), gocron.NewTask(clean))
	if err != nil {
		log.Fatal(err)
	}
	scheduler.Start()
	<-cleaned
	fmt.Println("this machine leads:", elector.IsLeader(ctx) == nil)
	// Output: this machine leads: true
}
