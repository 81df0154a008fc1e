// Command asynq is a worker that runs no two tasks of one customer at a time, in all
// workers together. With arguments it enqueues a task for each customer that they name.
package main

import (
	"context"
	"errors"
	"log"
	"os"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
	dlockredis "github.com/dlock-go/dlock/backend/redis"
)

// The payload of a task of this type is the name of a customer.
const makeInvoice = "invoice:make"

func main() {
	options, err := redis.ParseURL(os.Getenv("REDIS_URL"))
	if err != nil {
		log.Fatal(err)
	}
	rdb := redis.NewClient(options) // for the queue and for the locks
	defer rdb.Close()
	if customers := os.Args[1:]; len(customers) > 0 {
		if err := enqueue(rdb, customers); err != nil {
			log.Fatal(err)
		}
		return
	}
	locks, err := dlock.New(dlockredis.New(rdb, nil), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(context.Background())

	if err := asynq.NewServerFromRedisClient(rdb, config()).Run(newHandler(locks, invoice)); err != nil {
		log.Fatal(err)
	}
}

// invoice stands for the work.
func invoice(ctx context.Context, task *asynq.Task) error {
	log.Printf("making an invoice for %s", task.Payload())
	select {
	case <-time.After(5 * time.Second):
		return nil
	case <-ctx.Done(): // the lock is lost, or the task has taken too long
		return context.Cause(ctx)
	}
}

func newHandler(locks *dlock.Client, invoice asynq.HandlerFunc) asynq.Handler {
	tasks := asynq.NewServeMux()
	tasks.Use(onePerCustomer(locks))
	tasks.HandleFunc(makeInvoice, invoice)
	return tasks
}

// enqueue asks for an invoice for each of the customers.
func enqueue(rdb redis.UniversalClient, customers []string) error {
	client := asynq.NewClientFromRedisClient(rdb)
	for _, customer := range customers {
		if _, err := client.Enqueue(asynq.NewTask(makeInvoice, []byte(customer))); err != nil {
			return err
		}
	}
	return nil
}

// onePerCustomer has a task fail with dlock.ErrHeld while another one of the same type and
// customer runs in any worker.
func onePerCustomer(locks *dlock.Client) asynq.MiddlewareFunc {
	return func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			lock := locks.Mutex(task.Type() + "/" + string(task.Payload()))
			return dlock.TryDo(ctx, lock, func(ctx context.Context, _ *dlock.Lease) error {
				return next.ProcessTask(ctx, task)
			})
		})
	}
}

// config has a task that could not get its lock come back in a second, and not count that
// as one of its retries.
func config() asynq.Config {
	notRun := func(err error) bool {
		return errors.Is(err, dlock.ErrHeld) || errors.Is(err, dlock.ErrUnavailable)
	}
	return asynq.Config{
		Concurrency:              10,
		DelayedTaskCheckInterval: time.Second, // how often it looks for tasks that come back
		IsFailure:                func(err error) bool { return !notRun(err) },
		RetryDelayFunc: func(n int, err error, task *asynq.Task) time.Duration {
			if notRun(err) {
				return time.Second
			}
			return asynq.DefaultRetryDelayFunc(n, err, task)
		},
	}
}
