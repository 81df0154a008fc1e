package quorum_test

import (
	"context"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
)

// The nodes are new, and vote in a while. Two goroutines of a client ask for a lock, and both wait for that.
func TestTwoOfAClientWaitForNewNodes(t *testing.T) {
	in(t, 3, func(t *testing.T, s nodes) {
		c := s.open(t, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 2*delay)
		defer cancel()
		done := make(chan error, 2)
		for range 2 {
			go func() { done <- dlock.Do(ctx, c.Mutex("x"), nothing) }()
			time.Sleep(time.Millisecond)
		}
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

// One of three nodes that are far away has lost its data, and does not vote yet, and another hangs. Goroutines of one
// client wait for the first, also when the time that a first answer has is over before it is known that the others do
// not suffice.
func TestWaitForOneNodeBesideOneThatHangs(t *testing.T) {
	const trip = 150 * time.Millisecond
	ripe(t, 3, func(t *testing.T, s nodes) {
		c, _ := s.far(t, trip, trip, trip)
		ok(t, dlock.Do(t.Context(), c.Mutex("warm"), nothing))
		s[0].Wipe()
		s[1].Freeze()
		defer s[1].Thaw()
		ctx, cancel := context.WithTimeout(t.Context(), 2*delay)
		defer cancel()
		done := make(chan error, 3)
		for range 3 {
			go func() { done <- dlock.Do(ctx, c.Mutex("x"), nothing) }()
			time.Sleep(time.Millisecond)
		}
		for range 3 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}
