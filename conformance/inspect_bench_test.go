package conformance_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

const (
	manyWaiters = 10_000
	manyNames   = 100_000
)

// BenchmarkInspect asks for a lock with 10,000 waiters, each of another client, and for
// 100,000 names. Beside the time, it reports what the machine allocates for it, and how
// long another client takes for a lock of its own meanwhile and at rest. It is for a
// single Redis: the harnesses of others do not end so many holds in their time.
func BenchmarkInspect(b *testing.B) {
	for _, name := range chosen(b) {
		if name != "redis" {
			b.Skip("only for -backend=redis")
		}
		h := targets[name].harness(b)
		b.Run(name+"/waiters", func(b *testing.B) {
			benchInspect(b, h.Open(b, dlock.Options{}).Backend, h.Open(b, dlock.Options{}).Backend)
		})
		b.Run(name+"/names", func(b *testing.B) {
			benchNames(b, h.Open(b, dlock.Options{}).Backend, h.Open(b, dlock.Options{}).Backend)
		})
	}
}

// request is one of another client for each number.
func request(name string, n int) backend.Request {
	return backend.Request{Name: name, ID: backend.ID{Client: fmt.Sprintf("%032x", n), Seq: 1}, Label: "bench", Mode: backend.Exclusive,
		TTL: 10 * time.Minute, Wait: true, Observer: unheard{}}
}

type unheard struct{}

func (unheard) Queued()    {}
func (unheard) Lost(error) {}
func (unheard) Wanted()    {}

func benchInspect(b *testing.B, holds, asks backend.Backend) {
	name := fmt.Sprint("waiters-", rand.Uint64())
	ctx, cancel := context.WithCancel(b.Context())
	held, err := holds.Acquire(ctx, request(name, 0))
	if err != nil {
		b.Fatal(err)
	}
	var waiting sync.WaitGroup
	for n := range manyWaiters {
		waiting.Go(func() { _, _ = holds.Acquire(ctx, request(name, n+1)) })
	}
	in := asks.(backend.Inspector)
	for {
		s, err := in.Inspect(ctx, name)
		if err != nil {
			b.Fatal(err)
		}
		if len(s.Waiters) == manyWaiters {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	measureBeside(b, asks, func() {
		if _, err := in.Inspect(ctx, name); err != nil {
			b.Fatal(err)
		}
	})
	cancel()
	waiting.Wait()
	_ = holds.Release(context.Background(), held)
}

func benchNames(b *testing.B, holds, asks backend.Backend) {
	prefix := fmt.Sprint("names-", rand.Uint64(), "/")
	var holding sync.WaitGroup
	for part := range 64 {
		holding.Go(func() {
			for n := part; n < manyNames; n += 64 {
				if _, err := holds.Acquire(b.Context(), request(fmt.Sprint(prefix, n), n)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	holding.Wait()
	measureBeside(b, asks, func() {
		n := 0
		for _, err := range asks.(backend.Inspector).Names(b.Context(), prefix) {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		if n < manyNames {
			b.Fatalf("%d names", n)
		}
	})
}

// measureBeside runs ask again and again, while another client takes and releases a lock.
func measureBeside(b *testing.B, other backend.Backend, ask func()) {
	cycles := func(end <-chan struct{}) (took []time.Duration) {
		name := fmt.Sprint("other-", rand.Uint64())
		for n := 0; ; n++ {
			select {
			case <-end:
				slices.Sort(took)
				return took
			default:
			}
			start := time.Now()
			h, err := other.Acquire(context.Background(), request(name, n))
			if err == nil {
				err = other.Release(context.Background(), h)
			}
			if err != nil {
				b.Error(err)
				return took
			}
			took = append(took, time.Since(start))
		}
	}
	rest := make(chan struct{})
	time.AfterFunc(2*time.Second, func() { close(rest) })
	before := cycles(rest)
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	allocated := mem.TotalAlloc
	b.ResetTimer()
	ask()
	b.StopTimer()
	runtime.ReadMemStats(&mem)
	allocated = mem.TotalAlloc - allocated
	end, beside := make(chan struct{}), make(chan []time.Duration)
	go func() { beside <- cycles(end) }()
	b.StartTimer()
	for range b.N - 1 {
		ask()
	}
	b.StopTimer()
	close(end)
	meanwhile := <-beside
	b.ReportMetric(float64(allocated)/1e6, "MB/op")
	report := func(took []time.Duration, when string) {
		if len(took) > 0 {
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "µs-p50-"+when)
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "µs-p99-"+when)
		}
	}
	report(before, "rest")
	report(meanwhile, "beside")
}
