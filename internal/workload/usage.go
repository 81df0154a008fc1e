package workload

import (
	"context"
	"runtime"
	"time"
)

// A usage is what this process and the server have used up to a moment.
type usage struct {
	at      time.Time
	cpu     time.Duration
	mallocs uint64
	bytes   uint64
	server  Reading
	metered bool
}

// usageNow reads everything. The clock is read last for a beginning and first
// for an end, so that reading is not measured.
func usageNow(ctx context.Context, m Meter, begins bool) (u usage, err error) {
	if !begins {
		u.at, u.cpu = time.Now(), CPUTime()
	}
	if m != nil {
		u.metered = true
		if u.server, err = m.Read(ctx); err != nil {
			return u, err
		}
	}
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	u.mallocs, u.bytes = mem.Mallocs, mem.TotalAlloc
	if begins {
		u.at, u.cpu = time.Now(), CPUTime()
	}
	return u, nil
}

// A spent is what was used between two moments.
type spent struct {
	elapsed  time.Duration
	client   time.Duration
	server   time.Duration
	requests float64
	mallocs  float64
	bytes    float64
	metered  bool
	open     int // connections at the end
}

func between(a, b usage) spent {
	return spent{
		elapsed:  b.at.Sub(a.at),
		client:   b.cpu - a.cpu,
		server:   b.server.CPU - a.server.CPU,
		requests: float64(b.server.Requests - a.server.Requests),
		mallocs:  float64(b.mallocs - a.mallocs),
		bytes:    float64(b.bytes - a.bytes),
		metered:  a.metered && b.metered,
		open:     b.server.Connections,
	}
}

// perCycle records what n cycles took for each of them.
func (s spent) perCycle(r *Result, n float64) {
	some := n > 0
	r.set(Rate, n/s.elapsed.Seconds(), true)
	r.set(ClientCPU, micros(s.client)/n, some)
	r.set(Allocs, s.mallocs/n, some)
	r.set(AllocBytes, s.bytes/n, some)
	r.set(Requests, s.requests/n, some && s.metered)
	r.set(ServerCPU, micros(s.server)/n, some && s.metered)
	r.set(Connections, float64(s.open), s.metered)
}

// idle records what was used in a time in which nothing had to be done.
func (s spent) idle(r *Result) {
	seconds := s.elapsed.Seconds()
	r.set(IdleClient, 100*s.client.Seconds()/seconds, true)
	r.set(IdleRequest, s.requests/seconds, s.metered)
	r.set(IdleServer, 100*s.server.Seconds()/seconds, s.metered)
	r.set(Connections, float64(s.open), s.metered)
}

// A footprint is the memory and the goroutines of this process.
type footprint struct {
	heap       float64
	goroutines float64
}

func footprintNow() footprint {
	runtime.GC()
	runtime.GC() // pools are emptied by the second
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	return footprint{float64(mem.HeapAlloc), float64(runtime.NumGoroutine())}
}

// pass lets a while go by, or less if ctx is done.
func pass(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
