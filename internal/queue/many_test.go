package queue_test

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/queue"
	"github.com/dlock-go/dlock/internal/workload"
)

// crowd returns a queue in which n wait, and these in an order of no meaning.
func crowd(n int) (*queue.Queue[int], []*queue.Waiter[int]) {
	var q queue.Queue[int]
	q.TryEnter(backend.Exclusive)
	waiters := make([]*queue.Waiter[int], n)
	for i := range waiters {
		waiters[i] = queue.NewWaiter(0, backend.Exclusive, false, true)
		q.Join(waiters[i])
	}
	rnd := rand.New(rand.NewPCG(1, 1))
	rnd.Shuffle(n, func(i, j int) { waiters[i], waiters[j] = waiters[j], waiters[i] })
	return &q, waiters
}

// Who leaves does not go through all the others: while many contexts end at once, the
// client's mutex is held for each of them, and every other call waits. As many leave a
// hundred short queues as leave a long one, which would take a hundred times as long.
func TestManyWaitersLeave(t *testing.T) {
	took := func(queues, n int) (total time.Duration) {
		for range queues {
			q, waiters := crowd(n)
			begin := workload.CPUTime()
			for _, w := range waiters {
				q.Withdraw(w)
			}
			total += workload.CPUTime() - begin
			if q.Len() != 0 || q.First() != nil {
				t.Errorf("%d still wait", q.Len())
			}
		}
		return total
	}
	short, long := time.Hour, time.Hour
	for range 5 { // the collector may run in one of them and not in another
		short, long = min(short, took(100, 300)), min(long, took(1, 30_000))
		if long <= 30*short {
			return
		}
	}
	t.Errorf("%v for short queues and %v for a long one", short, long)
}

func BenchmarkWithdraw(b *testing.B) {
	for _, n := range []int{1000, 30_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			left := 0
			for b.Loop() {
				b.StopTimer()
				q, waiters := crowd(n)
				b.StartTimer()
				for _, w := range waiters {
					q.Withdraw(w)
				}
				left += n
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(left), "ns/waiter")
		})
	}
}
