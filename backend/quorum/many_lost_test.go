package quorum_test

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
)

// Two of three nodes have forgotten a thousand holds of a client. It hears of that with one renewal,
// and gives back what is left together: that takes few requests.
func TestManyLostTogether(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		const holds = 1000
		c := s.open(t, nil)
		var all []*dlock.Lease
		for i := range holds {
			all = append(all, c.lock(fmt.Sprint("x", i)))
		}
		synctest.Wait()
		before := s[2].Ops()
		s[0].Wipe()
		s[1].Wipe()
		most := 0
		for range 400 {
			time.Sleep(ttl / 400)
			most = max(most, runtime.NumGoroutine())
		}
		for _, l := range all {
			is(t, l.Err(), dlock.ErrLost)
		}
		t.Log("requests", s[2].Ops()-before, "goroutines", most)
		must(t, s[2].Ops()-before < holds/4, "%d requests to end what is left of %d holds", s[2].Ops()-before, holds)
	})
}
