package conformance

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
)

// Bench runs the workloads that backends are compared by. Compare the figures
// of one run only, and read ratios: the machine is part of every number.
func Bench(b *testing.B, h Harness) {
	h.check(b)
	b.Run("Uncontended", func(b *testing.B) { benchUncontended(newScene(b, &h)) })
	b.Run("Reentry", func(b *testing.B) { benchReentry(newScene(b, &h)) })
	b.Run("OwnKeys/64", func(b *testing.B) { benchOwnKeys(newScene(b, &h), 64) })
	for _, n := range []int{2, 16} {
		b.Run(fmt.Sprint("Goroutines/", n), func(b *testing.B) { benchOneKey(newScene(b, &h), 1, n) })
		b.Run(fmt.Sprint("Clients/", n), func(b *testing.B) { benchOneKey(newScene(b, &h), n, 1) })
	}
	b.Run("Held/1000", func(b *testing.B) { benchHeld(newScene(b, &h), 1000) })
}

// cycle locks and unlocks without any limit of its own.
func cycle(b testing.TB, l dlock.Locker) bool {
	lease, err := l.Lock(context.Background())
	if err == nil {
		err = lease.Unlock(context.Background())
	}
	if err != nil {
		b.Error(err)
	}
	return err == nil
}

func benchUncontended(s *scene) {
	b := s.TB.(*testing.B)
	l := s.open().Mutex(s.name)
	b.ReportAllocs()
	before := s.ops()
	for b.Loop() {
		cycle(b, l)
	}
	b.ReportMetric(float64(s.ops()-before)/float64(b.N), "requests/op")
}

func benchReentry(s *scene) {
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

func benchOwnKeys(s *scene, n int) {
	b := s.TB.(*testing.B)
	p := s.open()
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ReportAllocs()
	b.ResetTimer()
	each(n, func(i int) {
		l := p.Mutex(s.sub(i))
		for left.Add(-1) >= 0 && cycle(b, l) {
		}
	})
}

// benchOneKey passes one lock on among clients with so many goroutines each.
func benchOneKey(s *scene, clients, goroutines int) {
	b := s.TB.(*testing.B)
	peers := s.opens(clients)
	counts := make([]int, clients*goroutines)
	var left atomic.Int64
	left.Store(int64(b.N))
	before := s.ops()
	b.ResetTimer()
	each(len(counts), func(i int) {
		l := peers[i%clients].Mutex(s.name)
		for left.Add(-1) >= 0 && cycle(b, l) {
			counts[i]++
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "handovers/s")
	b.ReportMetric(float64(s.ops()-before)/float64(b.N), "requests/op")
	b.ReportMetric(float64(slices.Max(counts))/float64(max(slices.Min(counts), 1)), "most/fewest")
}

// benchHeld holds n locks and counts what that costs: bytes and goroutines, and
// requests for each second.
func benchHeld(s *scene, n int) {
	b := s.TB.(*testing.B)
	p := s.openWith(dlock.Options{TTL: 3 * s.TTL})
	heap, routines := usage()
	leases := make([]*dlock.Lease, n)
	var next atomic.Int64
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				leases[i], _ = p.Mutex(s.sub(i)).Lock(s.ctx)
			}
		})
	}
	all.Wait()
	heapAfter, routinesAfter := usage()
	before, start := s.ops(), time.Now()
	for b.Loop() {
		s.pass(time.Second)
	}
	b.ReportMetric(float64(s.ops()-before)/time.Since(start).Seconds(), "requests/s")
	b.ReportMetric(float64(heapAfter-heap)/float64(n), "B/lock")
	b.ReportMetric(float64(routinesAfter-routines), "goroutines")
	for _, lease := range leases {
		s.alive(lease)
	}
}

func usage() (heap int64, routines int) {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc), runtime.NumGoroutine()
}
