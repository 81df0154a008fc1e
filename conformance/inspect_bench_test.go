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
// 100,000 names. It reports how long that takes and what it allocates, and how long another
// client takes for a lock of its own meanwhile and at rest, in turn: run it with
// -benchtime=1x. It is for a single Redis: the harnesses of others do not end so many holds
// in their time.
func BenchmarkInspect(b *testing.B) {
	for _, name := range chosen(b) {
		if name != "redis" {
			b.Skip("only for -backend=redis")
		}
		h := targets[name].harness(b)
		open := func(b *testing.B) backend.Backend { return h.Open(b, dlock.Options{}).Backend }
		b.Run(name+"/waiters", func(b *testing.B) {
			benchInspect(b, open(b), open(b), open(b))
		})
		b.Run(name+"/names", func(b *testing.B) {
			benchNames(b, open(b), open(b), open(b))
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

func benchInspect(b *testing.B, holds, asks, other backend.Backend) {
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
	measureBeside(b, other, func() {
		if _, err := in.Inspect(ctx, name); err != nil {
			b.Fatal(err)
		}
	})
	cancel()
	waiting.Wait()
	_ = holds.Release(context.Background(), held)
}

func benchNames(b *testing.B, holds, asks, other backend.Backend) {
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
	measureBeside(b, other, func() {
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

// rounds is how often a look at the other client at rest is compared with one meanwhile.
const rounds = 5

// measureBeside runs ask, while another client takes and releases a lock, in turn with as
// long a time at rest.
func measureBeside(b *testing.B, other backend.Backend, ask func()) {
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	allocated := mem.TotalAlloc
	ask()
	runtime.ReadMemStats(&mem)
	allocated = mem.TotalAlloc - allocated
	var rest, beside []time.Duration
	var asking time.Duration
	for range rounds * b.N {
		end, took := make(chan struct{}), make(chan []time.Duration)
		go func() { took <- cycles(b, other, end) }()
		start := time.Now()
		ask()
		lasted := time.Since(start)
		close(end)
		beside, asking = append(beside, <-took...), asking+lasted
		quiet := make(chan struct{})
		time.AfterFunc(lasted, func() { close(quiet) })
		rest = append(rest, cycles(b, other, quiet)...)
	}
	b.StopTimer()
	mean := func(took []time.Duration) float64 {
		var sum time.Duration
		for _, d := range took {
			sum += d
		}
		return float64(sum.Microseconds()) / float64(len(took))
	}
	median := func(took []time.Duration) float64 {
		slices.Sort(took)
		return float64(took[len(took)/2].Microseconds())
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(asking.Seconds()/float64(rounds*b.N), "s/ask")
	b.ReportMetric(float64(allocated)/1e6, "MB/ask")
	b.ReportMetric(median(rest), "µs-p50-rest")
	b.ReportMetric(median(beside), "µs-p50-beside")
	b.ReportMetric((mean(beside)/mean(rest)-1)*100, "%-slower-mean")
	b.ReportMetric((median(beside)/median(rest)-1)*100, "%-slower-p50")
}

// cycles takes and releases a lock until end is closed, and returns how long each took.
func cycles(b *testing.B, other backend.Backend, end <-chan struct{}) (took []time.Duration) {
	name := fmt.Sprint("other-", rand.Uint64())
	for n := 0; ; n++ {
		select {
		case <-end:
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
