package workload

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// A Stock is what Held holds.
type Stock struct {
	// Name is what the names of the locks begin with.
	Name string

	// Locks is how many are held.
	Locks int

	// TTL is their lease. Within Time it has to be renewed if Time is longer.
	TTL time.Duration

	// Time is for how long to look on. That begins as long after the last was
	// taken, but no longer than TTL: what is done once for a lock that stays, such
	// as to watch it, is done then.
	Time time.Duration
}

// Held measures what it costs to hold many locks with nothing going on.
func Held(ctx context.Context, c Contender, s Stock) (*Result, error) {
	clients, close, err := parties(ctx, c, Options{TTL: s.TTL, Keep: true}, 1)
	if err != nil {
		return nil, err
	}
	r, err := s.hold(ctx, c, clients[0])
	return r, errors.Join(err, close())
}

func (s Stock) hold(ctx context.Context, c Contender, client Client) (*Result, error) {
	if err := warm(ctx, client, s.Name); err != nil {
		return nil, err
	}
	r, locks, bare := newResult(c), make([]Lock, s.Locks), footprintNow()
	start := time.Now()
	err := each(s.Locks, opener, func(i int) error {
		locks[i] = client.Lock(fmt.Sprint(s.Name, "/", i))
		return locks[i].Lock(ctx)
	})
	r.set(Setup, millis(time.Since(start)), true)
	if err != nil {
		return nil, err
	}
	if err := pass(ctx, min(s.TTL, s.Time)); err != nil {
		return nil, err
	}
	r.grown(bare, s.Locks)
	used, err := lookOn(ctx, c.Meter, s.Time)
	if err != nil {
		return nil, err
	}
	used.idle(r)
	r.set(HeldClient, micros(used.client)/used.elapsed.Seconds()/float64(s.Locks), true)
	r.set(HeldServer, micros(used.server)/used.elapsed.Seconds()/float64(s.Locks), used.metered)
	r.set(Lost, float64(giveBack(ctx, locks)), true)
	return r, nil
}

// warm makes what a client makes once.
func warm(ctx context.Context, client Client, name string) error {
	l := client.Lock(name + "/warm")
	return errors.Join(l.Lock(ctx), l.Unlock(ctx))
}

// grown records what n locks or waiters have added to a footprint.
func (r *Result) grown(bare footprint, n int) {
	now := footprintNow()
	r.set(Goroutines, now.goroutines-bare.goroutines, true)
	r.set(HeapEach, max(now.heap-bare.heap, 0)/float64(n), true)
}

// lookOn is what is used while nothing has to be done.
func lookOn(ctx context.Context, m Meter, d time.Duration) (spent, error) {
	before, err := usageNow(ctx, m, true)
	if err == nil {
		err = pass(ctx, d)
	}
	if err != nil {
		return spent{}, err
	}
	after, err := usageNow(ctx, m, false)
	return between(before, after), err
}

// giveBack unlocks all and returns how many were lost.
func giveBack(ctx context.Context, locks []Lock) int64 {
	var lost atomic.Int64
	_ = each(len(locks), opener, func(i int) error {
		held := true
		if l, ok := locks[i].(interface{ Err() error }); ok {
			held = l.Err() == nil
		}
		if err := locks[i].Unlock(ctx); err != nil || !held {
			lost.Add(1)
		}
		return nil // what becomes of one is no reason to keep the others
	})
	return lost.Load()
}
