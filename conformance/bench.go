package conformance

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/workload"
)

// Bench runs the workloads that backends are compared by. Compare the figures
// of one run only, and read ratios: the machine is part of every number.
func Bench(b *testing.B, h Harness) {
	h.check(b)
	b.Run("Uncontended", func(b *testing.B) { benchOwnKeys(newScenario(b, &h, limit), 1) })
	b.Run("Reentry", func(b *testing.B) { benchReentry(newScenario(b, &h, limit)) })
	b.Run("OwnKeys/64", func(b *testing.B) { benchOwnKeys(newScenario(b, &h, limit), 64) })
	for _, n := range []int{2, 16} {
		b.Run(fmt.Sprint("Goroutines/", n), func(b *testing.B) { benchOneKey(newScenario(b, &h, limit), 1, n) })
		b.Run(fmt.Sprint("Clients/", n), func(b *testing.B) { benchOneKey(newScenario(b, &h, limit), n, n) })
	}
	b.Run("Held/1000", func(b *testing.B) { benchHeld(newScenario(b, &h, limit), 1000) })
	b.Run("Waiting/100", func(b *testing.B) { benchWaiting(newScenario(b, &h, limit), 100) })
}

// contender is the backend of the scenario as the workloads see it. Clients are
// closed by them.
func (s *scenario) contender() workload.Contender {
	var m workload.Meter
	if s.Ops != nil {
		m = opsMeter(s.Ops)
	}
	return workload.DLock(s.Harness.Name, m, func(_ context.Context, o dlock.Options) (*dlock.Client, error) {
		return s.openWith(o).Client, nil
	})
}

type opsMeter func() int64

func (m opsMeter) Read(context.Context) (workload.Reading, error) {
	return workload.Reading{Requests: m()}, nil
}

func benchReentry(s *scenario) {
	b := s.TB.(*testing.B)
	l := s.open().Mutex(s.name)
	outer, err := l.Lock(context.Background())
	s.ok(err)
	ctx := outer.Context(context.Background())
	b.ReportAllocs()
	for b.Loop() {
		lease, err := l.Lock(ctx)
		s.ok(err)
		s.ok(lease.Unlock(ctx))
	}
}

// benchOwnKeys has n goroutines with a lock each.
func benchOwnKeys(s *scenario, n int) {
	b := s.TB.(*testing.B)
	r, err := workload.OwnKeys(s.ctx, s.contender(), workload.Load{
		Name: s.name, Goroutines: n, Cycles: int64(b.N), TTL: 3 * s.TTL,
	})
	s.ok(err)
	reportMetrics(b, r, workload.Requests, workload.Allocs, workload.AllocBytes)
	s.guarded(r)
}

// benchOneKey passes one lock on among clients with as many goroutines in all.
func benchOneKey(s *scenario, clients, goroutines int) {
	b := s.TB.(*testing.B)
	r, err := workload.OneKey(s.ctx, s.contender(), workload.Load{
		Name: s.name, Clients: clients, Goroutines: goroutines, Cycles: int64(b.N), TTL: 3 * s.TTL,
	})
	s.ok(err)
	reportMetrics(b, r, workload.HandOvers, workload.Requests, workload.Allocs, workload.Fairness)
	s.guarded(r)
}

// idleTime is a second for each op, but five at most.
func idleTime(b *testing.B) time.Duration { return min(time.Duration(b.N), 5) * time.Second }

// benchHeld holds n locks. One op is one second.
func benchHeld(s *scenario, n int) {
	b := s.TB.(*testing.B)
	r, err := workload.Held(s.ctx, s.contender(), workload.Stock{
		Name: s.name, Locks: n, TTL: 3 * s.TTL, Time: idleTime(b),
	})
	s.ok(err)
	reportMetrics(b, r, workload.IdleRequest, workload.IdleClient, workload.HeapEach, workload.Goroutines)
	s.guarded(r)
}

// benchWaiting has n goroutines of 10 clients wait for one lock. One op is one
// second in which it is held, and at most one in which it is handed over.
func benchWaiting(s *scenario, n int) {
	b := s.TB.(*testing.B)
	r, err := workload.Waiting(s.ctx, s.contender(), workload.Queue{
		Name: s.name, Waiters: n, Clients: 10, TTL: time.Minute, Time: idleTime(b),
	})
	s.ok(err)
	reportMetrics(b, r, workload.IdleRequest, workload.IdleClient, workload.IdlePass, workload.QueuedRate)
}

// guarded checks that the lock did what it is for.
func (s *scenario) guarded(r *workload.Result) {
	for _, m := range []workload.Metric{workload.Violations, workload.Lost} {
		if n := r.Figures[m]; n != 0 {
			s.Errorf("%v %s", n, m)
		}
	}
}

// reportMetrics takes ns/op from the cycles too, which leaves out the opening of clients.
func reportMetrics(b *testing.B, r *workload.Result, metrics ...workload.Metric) {
	if rate := r.Figures[workload.Rate]; rate > 0 {
		b.ReportMetric(1e9/rate, "ns/op")
	}
	for _, m := range metrics {
		if value, known := r.Figures[m]; known {
			b.ReportMetric(value, string(m))
		}
	}
}
