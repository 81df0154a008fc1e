package pg

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dlock-go/dlock"
	"github.com/jackc/pgx/v5"
)

// The floor is what bare pgx does with a connection for each goroutine.

func pinned(b *testing.B) *pgx.Conn {
	b.Helper()
	c, err := pgx.ConnectConfig(context.Background(), configOf(b, shared.Addr()))
	must(b, err)
	b.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

func pinnedCycle(b *testing.B, c *pgx.Conn, key int64) {
	ctx := context.Background()
	for _, sql := range []string{"SELECT pg_advisory_lock($1)", "SELECT pg_advisory_unlock($1)"} {
		if _, err := c.Exec(ctx, sql, key); err != nil {
			b.Error(err)
			return
		}
	}
}

func client(b *testing.B) (*dlock.Client, *Backend) {
	b.Helper()
	be, err := New(context.Background(), configOf(b, shared.Addr()), nil)
	must(b, err)
	c, err := dlock.New(be, nil)
	must(b, err)
	b.Cleanup(func() { _ = c.Close(context.Background()) })
	return c, be
}

func cycle(b *testing.B, m *dlock.Mutex) {
	ctx := context.Background()
	l, err := m.Lock(ctx)
	if err == nil {
		err = l.Unlock(ctx)
	}
	if err != nil {
		b.Error(err)
	}
}

// spread runs f b.N times over n goroutines.
func spread(b *testing.B, n int, f func(worker int)) {
	var next atomic.Int64
	var all sync.WaitGroup
	b.ResetTimer()
	for w := range n {
		all.Go(func() {
			for next.Add(1) <= int64(b.N) {
				f(w)
			}
		})
	}
	all.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "cycles/s")
}

func BenchmarkOneGoroutine(b *testing.B) {
	b.Run("floor", func(b *testing.B) {
		c := pinned(b)
		spread(b, 1, func(int) { pinnedCycle(b, c, 1) })
	})
	b.Run("dlock", func(b *testing.B) {
		c, _ := client(b)
		m := c.Mutex("one")
		spread(b, 1, func(int) { cycle(b, m) })
	})
}

func BenchmarkOwnKeys64(b *testing.B) {
	const n = 64
	b.Run("floor", func(b *testing.B) {
		conns := make([]*pgx.Conn, n)
		for i := range conns {
			conns[i] = pinned(b)
		}
		spread(b, n, func(w int) { pinnedCycle(b, conns[w], int64(w)) })
	})
	b.Run("dlock", func(b *testing.B) {
		c, be := client(b)
		locks := make([]*dlock.Mutex, n)
		for i := range locks {
			locks[i] = c.Mutex(fmt.Sprint("own", i))
		}
		spread(b, n, func(w int) { cycle(b, locks[w]) })
		b.ReportMetric(float64(be.connections()), "connections")
	})
}

func BenchmarkOneKey16Clients(b *testing.B) {
	const n = 16
	b.Run("floor", func(b *testing.B) {
		conns := make([]*pgx.Conn, n)
		for i := range conns {
			conns[i] = pinned(b)
		}
		spread(b, n, func(w int) { pinnedCycle(b, conns[w], 1) })
	})
	b.Run("dlock", func(b *testing.B) {
		locks := make([]*dlock.Mutex, n)
		for i := range locks {
			c, _ := client(b)
			locks[i] = c.Mutex("contended")
		}
		spread(b, n, func(w int) { cycle(b, locks[w]) })
	})
}
