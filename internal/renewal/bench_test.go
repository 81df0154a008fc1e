package renewal

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
)

type deaf struct{}

func (deaf) End(error) bool             { return false }
func (deaf) Renewed(Lease)              {}
func (deaf) RenewalFailed(Lease, error) {}

// BenchmarkRenewal renews one of 10,000 holds: it finds that it is due, and takes
// the answer. The time for that passes in the figures alone.
func BenchmarkRenewal(b *testing.B) {
	const n, ttl = 10_000, 24 * time.Hour
	k := newKeeper(renewFunc(extend))
	defer k.Close()
	start, items := time.Now(), make([]Item, n)
	for i := range items {
		items[i].Hold = &backend.Hold{Request: backend.Request{TTL: ttl}, Sent: start.Add(rand.N(ttl / 3)), Granted: ttl}
		if !k.Add(&items[i], 0, deaf{}) {
			b.Fatal("over")
		}
	}
	for done := 0; done < b.N; {
		now := k.clock.instant(k.clock.start.Add(time.Duration(k.schedule.first())))
		k.mu.Lock()
		k.collect(now)
		calls := make(map[time.Duration]*call)
		for len(k.queue) > 0 {
			k.fill(calls, k.queue[0], n)
		}
		k.mu.Unlock()
		for _, c := range calls {
			c.unanswered = len(c.items)
			k.inFlight += c.unanswered
			for _, h := range c.holds {
				h.Sent = k.clock.start.Add(time.Duration(now.at))
				k.answer(c, h, nil)
				done++
			}
		}
	}
}
