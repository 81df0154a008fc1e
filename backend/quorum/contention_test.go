package quorum_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend/memory"
)

// A trouble befalls a server, and the clients' links to it.
type trouble struct {
	name  string
	lasts time.Duration // as long as it takes to see all of it
	begin func(s *memory.Server, links []*distant) (end func())
}

var hung = trouble{"hung", time.Second, func(s *memory.Server, _ []*distant) func() {
	s.Freeze()
	return s.Thaw
}}

// slow has each answer come later by about that.
func slow(by time.Duration) trouble {
	return trouble{fmt.Sprintf("slow by %v", by), 3 * time.Second, func(_ *memory.Server, links []*distant) func() {
		for _, l := range links {
			l.trip.Add(int64(by))
			l.jitter.Store(int64(by / 10))
		}
		return func() {}
	}}
}

// flapping has the server hang and be back in turn, for that long each.
func flapping(period time.Duration) trouble {
	return trouble{fmt.Sprintf("flapping every %v", period), max(3*time.Second, 5*period), func(s *memory.Server, _ []*distant) func() {
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
	}}
}

// A turnout is how fast a lock that many want went round.
type turnout struct {
	perSecond float64
	longest   time.Duration // of all waits
}

func (o turnout) String() string {
	return fmt.Sprintf("%.0f hand-overs/s, longest wait %v", o.perSecond, o.longest.Round(time.Millisecond))
}

// contendUnder has clients take one lock in turn, in simulated time, at n nodes that are 2 ms
// away. As many as away of these are in trouble: those where the clients queue first.
func contendUnder(t *testing.T, n, clients, away int, tr trouble) (o turnout) {
	ripe(t, n, func(t *testing.T, s nodes) {
		trips, links := make([]time.Duration, n), make([][]*distant, n)
		for i := range trips {
			trips[i] = 2 * time.Millisecond
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
		for k := range away {
			i := (s.front("x") + k) % n
			defer tr.begin(s[i], links[i])()
		}
		visits, longest := contend(t, all, tr.lasts)
		o = turnout{float64(visits) / tr.lasts.Seconds(), longest}
	})
	return o
}

// mustBeatHalf fails the test if a lock went round less than half as fast as with all nodes up,
// or if somebody waited ten times as long and for more than the limits of requests force: at
// each node in trouble 50 ms for an answer, twice that for each of two pings, and to find the
// others.
func (o turnout) mustBeatHalf(t *testing.T, up turnout, away int) {
	t.Helper()
	most := max(10*up.longest, time.Duration(away)*250*time.Millisecond+100*time.Millisecond)
	if o.perSecond < up.perSecond/2 || o.longest > most {
		t.Errorf("%v, with all up %v: that is too slow", o, up)
	}
}

// A lock that many want goes round at least half as fast with as many nodes hung as a majority
// survives, and nobody waits for long.
func TestContendedByNodesUp(t *testing.T) {
	for _, n := range []int{3, 5} {
		for _, clients := range []int{2, 4, 8} {
			up := contendUnder(t, n, clients, 0, hung)
			t.Logf("%d nodes, %d up, %d clients: %v", n, n, clients, up)
			for away := 1; away <= n/2; away++ {
				o := contendUnder(t, n, clients, away, hung)
				t.Logf("%d nodes, %d up, %d clients: %v", n, n-away, clients, o)
				o.mustBeatHalf(t, up, away)
			}
		}
	}
}

// The same is so where nodes answer late, or come and go.
func TestContendedWithNodesInTrouble(t *testing.T) {
	const ms, clients = time.Millisecond, 4
	for _, n := range []int{3, 5} {
		up := contendUnder(t, n, clients, 0, hung)
		for _, tr := range []trouble{
			slow(20 * ms), slow(60 * ms), slow(300 * ms), slow(1000 * ms), flapping(200 * ms), flapping(300 * ms), flapping(2000 * ms),
		} {
			o := contendUnder(t, n, clients, n/2, tr)
			t.Logf("%d nodes, %d %s: %v", n, n/2, tr.name, o)
			o.mustBeatHalf(t, up, n/2)
		}
	}
}
