package main

import (
	"context"
	"sync"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/dlock-go/dlock"
	dlockredis "github.com/dlock-go/dlock/backend/redis"
	"github.com/dlock-go/dlock/examples/recipes/internal/try"
)

// startWorker runs a worker as main does.
func startWorker(t *testing.T, url string, handle asynq.HandlerFunc) {
	t.Helper()
	rdb := try.Connect(t, url)
	locks, err := dlock.New(dlockredis.New(rdb, nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { locks.Close(context.Background()) })
	c := config()
	c.LogLevel = asynq.FatalLevel
	worker := asynq.NewServerFromRedisClient(rdb, c)
	if err := worker.Start(newHandler(locks, handle)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(worker.Shutdown)
}

// customers counts who is in the handler.
type customers struct {
	mu                sync.Mutex
	now, most, served map[string]int
}

func (c *customers) add(name string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now[name] += n
	c.most[name] = max(c.most[name], c.now[name])
	if n < 0 {
		c.served[name]++
	}
}

func (c *customers) of(counts map[string]int, name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return counts[name]
}

// Three tasks of one customer and one of another come to two workers. The first task of
// each runs until the others of its customer have been turned away: they come back, none
// is lost and none counts as a failure.
func TestTasksOfACustomerRunOneAtATime(t *testing.T) {
	url, _ := try.Redis(t)
	c := &customers{now: map[string]int{}, most: map[string]int{}, served: map[string]int{}}
	goOn := make(chan struct{})
	for range 2 {
		startWorker(t, url, func(_ context.Context, task *asynq.Task) error {
			name := string(task.Payload())
			c.add(name, 1)
			defer c.add(name, -1)
			<-goOn
			return nil
		})
	}
	if err := enqueue(try.Connect(t, url), []string{"ada", "ada", "ada", "bob"}); err != nil {
		t.Fatal(err)
	}
	queue := asynq.NewInspectorFromRedisClient(try.Connect(t, url))
	state := func() *asynq.QueueInfo {
		info, err := queue.GetQueueInfo("default")
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	try.Await(t, "both customers are served at a time and two tasks have to come back", func() bool {
		return c.of(c.now, "ada") == 1 && c.of(c.now, "bob") == 1 && state().Retry == 2
	})
	tasks, err := queue.ListRetryTasks("default")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		if task.Retried != 0 {
			t.Errorf("a task that was turned away counts %d retries", task.Retried)
		}
	}
	close(goOn)
	try.Await(t, "all tasks are done", func() bool { return c.of(c.served, "ada") == 3 && c.of(c.served, "bob") == 1 })
	if n := c.of(c.most, "ada"); n != 1 {
		t.Errorf("%d tasks of a customer at a time", n)
	}
	if n := state().Archived; n != 0 {
		t.Errorf("%d tasks are archived", n)
	}
}
