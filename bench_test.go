package dlock_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend/memory"
)

func BenchmarkLockUnlock(b *testing.B) {
	l := newMemory(b, nil).Mutex("bench")
	b.ReportAllocs()
	for b.Loop() {
		lease, err := l.Lock(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		if err := lease.Unlock(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReentry(b *testing.B) {
	l := newMemory(b, nil).Mutex("bench")
	outer, err := l.Lock(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	ctx := outer.Context(b.Context())
	b.ReportAllocs()
	for b.Loop() {
		lease, err := l.Lock(ctx)
		if err != nil {
			b.Fatal(err)
		}
		if err := lease.Unlock(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkHandOver has goroutines of one client pass one lock on. Fairness is
// the most entries of one of them divided by the fewest.
func BenchmarkHandOver(b *testing.B) {
	for _, n := range []int{2, 16, 128} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			l := newMemory(b, nil).Mutex("bench")
			counts := make([]int, n)
			var left atomic.Int64
			left.Store(int64(b.N))
			start := make(chan struct{})
			var all sync.WaitGroup
			for i := range n {
				all.Go(func() {
					<-start
					for left.Add(-1) >= 0 {
						lease, err := l.Lock(context.Background())
						if err != nil {
							b.Error(err)
							return
						}
						counts[i]++
						if err := lease.Unlock(context.Background()); err != nil {
							b.Error(err)
						}
					}
				})
			}
			b.ReportAllocs()
			b.ResetTimer()
			close(start)
			all.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "handovers/s")
			b.ReportMetric(float64(slices.Max(counts))/float64(max(slices.Min(counts), 1)), "most/fewest")
		})
	}
}

func newMemory(tb testing.TB, o *dlock.Options) *dlock.Client {
	tb.Helper()
	c, err := dlock.New(memory.New(nil), o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			tb.Error(err)
		}
	})
	return c
}
