package zk_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend/zk"
	"github.com/dlock-go/dlock/internal/server"
)

// A rival is a way to take and give back the lock at path, on one connection.
type rival struct {
	name string
	open func(b *testing.B, addr, path string) (cycle func() error)
}

func driver(b *testing.B, addr string) *gozk.Conn {
	conn, _, err := gozk.Connect([]string{addr}, time.Minute, gozk.WithLogInfo(false), gozk.WithLogger(quiet{}))
	must(b, err)
	b.Cleanup(conn.Close)
	return conn
}

var rivals = []rival{
	{"dlock", func(b *testing.B, addr, path string) func() error {
		m := connect(b, &zk.Options{Root: path, SessionTimeout: time.Minute}, addr).Mutex("m")
		ctx := context.Background()
		return func() error {
			lease, err := m.Lock(ctx)
			if err != nil {
				return err
			}
			return lease.Unlock(ctx)
		}
	}},
	{"zk.Lock", func(b *testing.B, addr, path string) func() error {
		l := gozk.NewLock(driver(b, addr), path, gozk.WorldACL(gozk.PermAll))
		return func() error {
			if err := l.Lock(); err != nil {
				return err
			}
			return l.Unlock()
		}
	}},
}

// floor is what no lock can do without: a node is made and deleted.
var floor = rival{"floor", func(b *testing.B, addr, path string) func() error {
	conn := driver(b, addr)
	_, err := conn.Create(path, nil, gozk.FlagPersistent, gozk.WorldACL(gozk.PermAll))
	must(b, err)
	return func() error {
		made, err := conn.Create(path+"/n-", nil, gozk.FlagEphemeralSequential, gozk.WorldACL(gozk.PermAll))
		if err != nil {
			return err
		}
		return conn.Delete(made, -1)
	}
}}

// BenchmarkFree takes and gives back a lock that nobody else wants, in turn with
// its rivals, so that all see the same server and the same machine.
func BenchmarkFree(b *testing.B) {
	s := server.Start(b, kind)
	compare(b, append(rivals, floor), func(r rival) func() {
		cycle := r.open(b, s.Addr(), "/"+r.name)
		return func() { must(b, cycle()) }
	})
}

// BenchmarkContended has sixteen clients hand one lock round.
func BenchmarkContended(b *testing.B) {
	const clients, cycles = 16, 4
	s := server.Start(b, kind)
	compare(b, rivals, func(r rival) func() {
		var all []func() error
		for range clients {
			all = append(all, r.open(b, s.Addr(), "/"+r.name))
		}
		return func() {
			var wg sync.WaitGroup
			for _, cycle := range all {
				wg.Go(func() {
					for range cycles {
						if err := cycle(); err != nil {
							b.Error(err)
						}
					}
				})
			}
			wg.Wait()
		}
	})
}

// compare runs all rivals in turn. It reports the median of each in
// microseconds, and how many times as fast the first is as each other.
func compare(b *testing.B, rivals []rival, prepare func(rival) func()) {
	runs := make([]func(), len(rivals))
	times := make([][]time.Duration, len(rivals))
	for i, r := range rivals {
		runs[i] = prepare(r)
		runs[i]() // makes what is made once
	}
	for b.Loop() {
		for i, run := range runs {
			start := time.Now()
			run()
			times[i] = append(times[i], time.Since(start))
		}
	}
	ours := median(times[0])
	for i, r := range rivals {
		b.ReportMetric(float64(median(times[i]).Microseconds()), "µs/"+r.name)
		if i > 0 {
			b.ReportMetric(float64(median(times[i]))/float64(ours), "×"+r.name)
		}
	}
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}
