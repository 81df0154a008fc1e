package quorum_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
)

// Each client is cut off from one node now and then, and one node at a time takes the lock away from
// whoever has it. Two never have it at once.
func TestOneNodeTakesAwayBesideCuts(t *testing.T) {
	const holds, clients = 300, 4
	for _, trip := range []time.Duration{0, 20 * time.Millisecond} {
		ripe(t, 3, func(t *testing.T, s nodes) {
			r := &checker{t: t}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var all, work sync.WaitGroup
			all.Go(func() {
				for ctx.Err() == nil {
					s[rand.N(3)].Evict("x")
					time.Sleep(2*ttl + rand.N(ttl))
				}
			})
			for range clients {
				c := s.openFar(t, trip)
				all.Go(func() {
					for ctx.Err() == nil {
						time.Sleep(rand.N(2 * ttl))
						link := c.links[rand.N(3)]
						link.Cut()
						time.Sleep(rand.N(3 * ttl))
						link.Heal()
					}
				})
				work.Go(func() {
					for range holds / clients {
						l, err := c.Mutex("x").Lock(t.Context())
						if err != nil { // what is left of the last hold is not given back yet
							is(t, err, dlock.ErrUnavailable)
							continue
						}
						time.Sleep(time.Millisecond) // who has lost it hears of that
						r.enter(l)
						time.Sleep(rand.N(2 * ttl))
						r.leave(l)
						_ = l.Unlock(t.Context())
					}
				})
			}
			work.Wait()
			cancel()
			all.Wait()
		})
	}
}
