package quorum_test

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend/memory"
)

// A trouble befalls a server, and the clients' links to it.
type trouble struct {
	name  string
	begin func(s *memory.Server, links []*distant) (end func())
}

var noTrouble = trouble{"well", func(*memory.Server, []*distant) func() { return func() {} }}

var troubles = []trouble{
	{"hung", func(s *memory.Server, _ []*distant) func() {
		s.Freeze()
		return s.Thaw
	}},
	{"slow", func(_ *memory.Server, links []*distant) func() {
		for _, l := range links {
			l.trip.Add(int64(60 * time.Millisecond))
			l.jitter.Store(int64(10 * time.Millisecond))
		}
		return func() {}
	}},
	{"flapping", func(s *memory.Server, _ []*distant) func() {
		const period = 300 * time.Millisecond
		done, over := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(over)
			for frozen := false; ; {
				select {
				case <-time.After(period):
				case <-done:
					s.Thaw()
					return
				}
				if frozen = !frozen; frozen {
					s.Freeze()
				} else {
					s.Thaw()
				}
			}
		}()
		return func() { close(done); <-over }
	}},
}

// A lock that many want goes round at least half as fast with as many nodes in trouble as a
// majority survives, those where the clients queue first, and nobody waits for long.
func TestContendedWithNodesAway(t *testing.T) {
	const clients, trip = 4, 2 * time.Millisecond
	for _, n := range []int{3, 5} {
		measure := func(trouble trouble) (visits int, longest time.Duration) {
			ripe(t, n, func(t *testing.T, s nodes) {
				trips, links := make([]time.Duration, n), make([][]*distant, n)
				for i := range trips {
					trips[i] = trip
				}
				var all []*dlock.Client
				for range clients {
					c, far := s.far(t, trips...)
					for i, d := range far {
						links[i] = append(links[i], d)
					}
					for range 10 {
						ok(t, dlock.Do(t.Context(), c.Mutex("warm"), nothing))
					}
					all = append(all, c)
				}
				for k := range n / 2 {
					i := (s.front("x") + k) % n
					defer trouble.begin(s[i], links[i])()
				}
				visits, longest = contend(t, all, 4*time.Second)
			})
			return visits, longest
		}
		up, most := measure(noTrouble)
		for _, trouble := range troubles {
			visits, longest := measure(trouble)
			t.Logf("%d nodes, %d %s: %d hand-overs in place of %d, longest wait %v in place of %v", n, n/2, trouble.name, visits, up, longest, most)
			if visits < up/2 || longest > 500*time.Millisecond {
				t.Error("that is too slow")
			}
		}
	}
}
