package etcd_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/faultnet"
	"github.com/dlock-go/dlock/internal/inturn"
)

// cycle locks and unlocks once.
type cycle func() error

// A rival is a way to take and give back a lock, on one connection.
type rival struct {
	name string
	open func(*testing.B) cycle
}

func dlockCycle(b *testing.B) cycle {
	m, ctx := open(b, time.Minute, shared.Addr()).Mutex("a"), context.Background()
	return func() error {
		lease, err := m.Lock(ctx)
		if err != nil {
			return err
		}
		return lease.Unlock(ctx)
	}
}

// mutexCycle is etcd's own recipe, with a session of its own for each waiter:
// two Mutexes of one session do not exclude each other.
func mutexCycle(b *testing.B) cycle {
	s, err := concurrency.NewSession(raw(b, shared.Addr()))
	must(b, err)
	b.Cleanup(func() { s.Close() })
	m, ctx := concurrency.NewMutex(s, prefix(b)+"/mutex"), context.Background()
	return func() error {
		if err := m.Lock(ctx); err != nil {
			return err
		}
		return m.Unlock(ctx)
	}
}

// floorCycle is what the server needs for a key that comes and goes.
func floorCycle(b *testing.B) cycle {
	c, ctx, key := raw(b, shared.Addr()), context.Background(), prefix(b)+"/floor"
	lease, err := c.Grant(ctx, 60)
	must(b, err)
	free := clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
	return func() error {
		if _, err := c.Txn(ctx).If(free).Then(clientv3.OpPut(key, "", clientv3.WithLease(lease.ID))).Commit(); err != nil {
			return err
		}
		_, err := c.Delete(ctx, key)
		return err
	}
}

// BenchmarkFree takes and gives back a lock that nobody else wants.
func BenchmarkFree(b *testing.B) {
	var rivals []inturn.Rival
	for _, r := range []rival{{"dlock", dlockCycle}, {"mutex", mutexCycle}, {"floor", floorCycle}} {
		do := r.open(b)
		rivals = append(rivals, inturn.Rival{Name: r.name, Run: func() { must(b, do()) }})
	}
	inturn.Compare(b, rivals...)
}

// BenchmarkOneKey compares clients that want the same lock all the time.
func BenchmarkOneKey(b *testing.B) {
	for _, clients := range []int{2, 16} {
		for name, of := range map[string]func(*testing.B) cycle{"dlock": dlockCycle, "mutex": mutexCycle} {
			b.Run(fmt.Sprintf("%d/%s", clients, name), func(b *testing.B) { contend(b, clients, of) })
		}
	}
}

func contend(b *testing.B, clients int, of func(*testing.B) cycle) {
	var all []cycle
	for range clients {
		all = append(all, of(b))
	}
	b.ResetTimer()
	share(b, all, b.N)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "hand-overs/s")
}

// share has all do n cycles between them.
func share(b *testing.B, all []cycle, n int) {
	var left atomic.Int64
	left.Store(int64(n))
	var group sync.WaitGroup
	for _, do := range all {
		group.Go(func() {
			for left.Add(-1) >= 0 {
				if err := do(); err != nil {
					b.Error(err)
				}
			}
		})
	}
	group.Wait()
}

// BenchmarkHandOver has 16 clients at a distance pass a lock around. A hand-over is a write,
// and whoever has released the lock asks for it again, which is a write beside the next. So
// many writes are the floor.
func BenchmarkHandOver(b *testing.B) {
	const clients, each = 16, 20
	p := proxied(b, shared.Addr())
	p.Delay(faultnet.BothWays, time.Millisecond/2, 0)
	ctx := context.Background()
	var locks []cycle
	var puts []func()
	for i := range clients {
		m, c := open(b, time.Minute, p.Addr()).Mutex("a"), raw(b, p.Addr())
		locks = append(locks, func() error { return dlock.Do(ctx, m, func(context.Context, *dlock.Lease) error { return nil }) })
		puts = append(puts, func() {
			if _, err := c.Put(ctx, fmt.Sprint(prefix(b), "/floor/", i), ""); err != nil {
				b.Error(err)
			}
		})
	}
	inTurn := func(again bool) {
		var group sync.WaitGroup
		for i := range clients * each {
			puts[i%clients]()
			if again {
				group.Go(puts[i%clients])
			}
		}
		group.Wait()
	}
	inturn.Compare(b,
		inturn.Rival{Name: "dlock", Run: func() { share(b, locks, clients*each) }},
		inturn.Rival{Name: "put", Run: func() { inTurn(false) }},
		inturn.Rival{Name: "two-puts", Run: func() { inTurn(true) }})
}
