package quorum_test

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend/memory"
)

// The front is far, and is still being told a token when a near node has granted, whose
// clock is behind. The hold has the token that the front is told: Inspect shows it, and
// Break takes it.
func TestTokenThatTheFrontIsBeingTold(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		front := s.front("x")
		near := (front + 1) % 3
		trips := []time.Duration{100 * time.Millisecond, 100 * time.Millisecond, 100 * time.Millisecond}
		trips[near] = 10 * time.Millisecond
		s[near].SetClock(-5 * time.Second)
		c, _ := s.far(t, trips...)
		for range 10 {
			ok(t, dlock.Do(t.Context(), c.Mutex("warm"), nothing))
		}
		a, asks := s.open(t, nil), s.backendOf(t)
		l := a.lock("x")
		granted := make(chan *dlock.Lease)
		go func() {
			l, err := c.Mutex("x").Lock(t.Context())
			ok(t, err)
			granted <- l
		}()
		time.Sleep(time.Second)
		a.unlock(l)
		l = <-granted
		time.Sleep(time.Second)
		got, err := asks.Inspect(t.Context(), "x")
		ok(t, err)
		must(t, len(got.Holders) == 1 && got.Holders[0].Token == l.Token(), "%+v, want token %d", got.Holders, l.Token())
		for i := range s {
			got, err := memory.New(s[i]).Inspect(t.Context(), "x")
			ok(t, err)
			must(t, len(got.Holders) == 1 && got.Holders[0].Token == l.Token(), "node %d: %+v, want token %d", i, got, l.Token())
		}
		ok(t, asks.Break(t.Context(), "x", l.Token()))
		<-l.Done()
		is(t, l.Err(), dlock.ErrLost)
	})
}
