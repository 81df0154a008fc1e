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
		waitTogether(t, s.open(t, nil).Client, 2)
	})
}

// waitTogether has n goroutines of a client wait for a lock, which all get while nodes that forgot begin to vote.
func waitTogether(t *testing.T, c *dlock.Client, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*delay)
	defer cancel()
	done := make(chan error, n)
	for range n {
		go func() { done <- dlock.Do(ctx, c.Mutex("x"), nothing) }()
		time.Sleep(time.Millisecond)
	}
	for range n {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
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
		waitTogether(t, c, 3)
	})
}
