package quorum_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
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

// Likewise many goroutines of one client try at the lock, which too few nodes can grant. Those behind the first know by
// its failure no more than that: all are told in the time of a first answer.
func TestManyTriesWhereTooFewNodesVote(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		c := s.open(t, nil).Client
		ok(t, dlock.Do(t.Context(), c.Mutex("warm"), nothing))
		s[0].Wipe()
		s[1].Freeze()
		defer s[1].Thaw()
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				began := time.Now()
				_, err := c.Mutex("x").TryLock(t.Context())
				is(t, err, dlock.ErrUnavailable)
				if took := time.Since(began); took > backend.FirstAnswer+200*time.Millisecond {
					t.Errorf("try %d after %v: %v", i, took, err)
				}
			})
			time.Sleep(200 * time.Millisecond)
		}
		all.Wait()
	})
}
