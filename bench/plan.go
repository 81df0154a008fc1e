package main

import (
	"context"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/internal/workload"
)

// A size is how much of everything is done. There is a full one, which is meant to
// take less than twenty minutes, and a quick one, by which tests see that all works.
type size struct {
	Turns  int           `json:"turns"`       // of W1 and W2
	Turn   time.Duration `json:"turn_ns"`     // of one measurement there
	Rounds int           `json:"rounds"`      // of W3 and W4
	Looks  int           `json:"idle_rounds"` // of W5 and W6
	Time   time.Duration `json:"window_ns"`   // of one measurement
	Idle   time.Duration `json:"idle_ns"`     // of one look at something that rests

	Cycles  int64         `json:"cycles,omitempty"` // if not zero, they end W1 to W4 instead of the time
	RaceTTL time.Duration `json:"race_ttl_ns"`      // leases of W1 to W4
	HeldTTL time.Duration `json:"held_ttl_ns"`      // leases of W5

	Goroutines int `json:"goroutines"` // W2
	Contend    int `json:"contenders"` // W3, W4
	Held       int `json:"held"`       // W5
	Waiters    int `json:"waiters"`    // W6

	Waiting []int `json:"waiting_series"`
	Holding []int `json:"holding_series"`
	Clients []int `json:"clients_series"`
	OwnKeys []int `json:"own_keys_series"`
}

var full = size{
	Turns: 15, Turn: 200 * time.Millisecond,
	Rounds: 9, Looks: 1, Time: 500 * time.Millisecond, Idle: 3 * time.Second,
	RaceTTL:    5 * time.Second,
	HeldTTL:    3 * time.Second, // renewed several times while W5 looks on
	Goroutines: 64, Contend: 16, Held: 10_000, Waiters: 500,
	Waiting: []int{1, 10, 100, 1_000, 10_000},
	Holding: []int{1, 100, 10_000, 100_000},
	Clients: []int{1, 4, 16, 64},
	OwnKeys: []int{1, 4, 16, 64, 256, 1_024},
}

var quick = size{
	Turns: 1, Rounds: 1, Looks: 1, Time: 20 * time.Millisecond, Idle: 50 * time.Millisecond,
	Cycles: 12, RaceTTL: time.Minute, HeldTTL: time.Minute, // however slow the machine is
	Goroutines: 4, Contend: 3, Held: 5, Waiters: 2,
	Waiting: []int{3}, Holding: []int{3}, Clients: []int{2}, OwnKeys: []int{2},
}

const (
	lineTTL  = 2 * time.Minute // longer than W6
	perPoint = 2 * time.Minute // more is a failure
)

// A task is one workload at one size.
type task struct {
	ID     string
	Rounds int
	X      int // of a series
	Run    runner
}

// key tells the tasks of one size apart, such as "W1" and "held/1000".
func (t task) key() string {
	if t.X == 0 {
		return t.ID
	}
	return fmt.Sprintf("%s/%d", t.ID, t.X)
}

// tasks are W1 to W6.
func (s size) tasks() []task {
	return []task{
		{ID: "W1", Rounds: s.Turns, Run: s.ownKeys(1, s.Turn)},
		{ID: "W2", Rounds: s.Turns, Run: s.ownKeys(s.Goroutines, s.Turn)},
		{ID: "W3", Rounds: s.Rounds, Run: s.oneKey(1, s.Contend)},
		{ID: "W4", Rounds: s.Rounds, Run: s.oneKey(s.Contend, s.Contend)},
		{ID: "W5", Rounds: s.Looks, Run: s.held(s.Held)},
		{ID: "W6", Rounds: s.Looks, Run: s.waiting(s.Waiters)},
	}
}

// series show how cost grows with the work. Each of their points is one round.
func (s size) series() (all []task) {
	add := func(id string, xs []int, run func(int) runner) {
		for _, x := range xs {
			all = append(all, task{ID: id, X: x, Rounds: 1, Run: run(x)})
		}
	}
	add("own keys", s.OwnKeys, func(n int) runner { return s.ownKeys(n, s.Time) })
	add("clients", s.Clients, func(n int) runner { return s.oneKey(n, n) })
	add("waiters", s.Waiting, s.waiting)
	add("held", s.Holding, s.held)
	return all
}

type runner = func(context.Context, workload.Contender, string) (*workload.Result, error)

func (s size) ownKeys(goroutines int, turn time.Duration) runner {
	return func(ctx context.Context, c workload.Contender, name string) (*workload.Result, error) {
		return workload.OwnKeys(ctx, c, workload.Load{
			Name: name, Goroutines: goroutines, Time: turn, Cycles: s.Cycles, TTL: s.RaceTTL,
		})
	}
}

func (s size) oneKey(clients, goroutines int) runner {
	return func(ctx context.Context, c workload.Contender, name string) (*workload.Result, error) {
		return workload.OneKey(ctx, c, workload.Load{
			Name: name, Clients: clients, Goroutines: goroutines, Time: s.Time, Cycles: s.Cycles, TTL: s.RaceTTL,
		})
	}
}

func (s size) held(n int) runner {
	return func(ctx context.Context, c workload.Contender, name string) (*workload.Result, error) {
		return workload.Held(ctx, c, workload.Stock{Name: name, Locks: n, TTL: s.HeldTTL, Time: s.Idle})
	}
}

// queueClients share the waiters of W6.
const queueClients = 10

func (s size) waiting(n int) runner {
	return func(ctx context.Context, c workload.Contender, name string) (*workload.Result, error) {
		return workload.Waiting(ctx, c, workload.Queue{
			Name: name, Waiters: n, Clients: min(n, queueClients), Time: max(s.Idle/2, s.Time), TTL: lineTTL,
		})
	}
}
