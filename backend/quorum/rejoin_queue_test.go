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
