package keepalive

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
)

type deaf struct{}

func (deaf) Lost(error)                 {}
func (deaf) Renewed(time.Duration) bool { return false }

// BenchmarkRenewal renews one of 10,000 holds: it finds that it is due, and takes
// the answer. The time for that passes in the figures alone.
func BenchmarkRenewal(b *testing.B) {
	const n, ttl = 10_000, 24 * time.Hour
	k := New(renewFunc(extend))
	defer k.Close()
	start, items := time.Now(), make([]Item, n)
	for i := range items {
		items[i].Hold = &backend.Hold{Request: backend.Request{TTL: ttl}, Sent: start.Add(rand.N(ttl / 3)), Granted: ttl}
		if !k.Add(&items[i], 0, deaf{}) {
			b.Fatal("over")
		}
	}
	for done := 0; done < b.N; {
		now := k.clock.start.Add(time.Duration(k.lots[0].at))
		k.mu.Lock()
		_, groups := k.collect(now)
		k.mu.Unlock()
		for _, g := range groups {
			for i, h := range g.holds {
				h.Sent = now
				k.report(g.items[i], nil)
				done++
			}
		}
	}
}
