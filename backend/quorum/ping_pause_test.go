package quorum_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
)

// Who waits pings the nodes every 2 s at the most, and so sees soon that the front is away, also if that has just
// answered something else when it went.
func TestWaiterSeesSoonThatTheFrontIsAway(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		front, holder := s.front("x"), s.open(t, nil)
		var pings atomic.Int64
		waiter := s.overPinged(t, &pings)
		ok(t, dlock.Do(t.Context(), waiter.Mutex("y"), nothing))
		l := holder.lock("x")
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		got := make(chan error, 1)
		go func() { got <- dlock.Do(ctx, waiter.Mutex("x"), nothing) }()
		time.Sleep(time.Minute)
		for before := pings.Load(); pings.Load() == before; {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(10 * time.Millisecond)
		ok(t, dlock.Do(t.Context(), waiter.Mutex("z"), nothing))
		s[front].Freeze()
		away := time.Now()
		holder.unlock(l)
		ok(t, <-got)
		if took := time.Since(away); took > 2500*time.Millisecond {
			t.Errorf("it waits for a free lock for %v", took)
		}
		s[front].Thaw()
	})
}
