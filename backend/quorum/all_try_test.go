package quorum_test

import (
	"context"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
	"github.com/dlock-go/dlock/backend/quorum"
)

// Where all nodes are needed and one is silent, a try that stood behind another call of its client
// has no longer than that for its first answer: what one node says is no answer of the quorum to a
// request that has asked them all.
func TestTryBehindATryNeedingAll(t *testing.T) {
	in(t, 3, func(t *testing.T, s nodes) {
		c := s.open(t, &quorum.Options{Need: 3})
		c.unlock(c.lock("x"))
		s.freeze(1)
		defer s.thaw()
		go c.try("x")
		time.Sleep(time.Second)
		began := time.Now()
		_, err := c.try("x")
		is(t, err, dlock.ErrUnavailable)
		took := time.Since(began)
		must(t, took <= backend.FirstAnswer+100*time.Millisecond, "it took %v", took)
	})
}

// Somebody else has one of the nodes, of which all are needed, and a call waits there with those before
// it in its hands. A call of the same client behind it is told in time that the lock is held: all nodes
// answer.
func TestCallBehindAWaiterWithAPart(t *testing.T) {
	in(t, 3, func(t *testing.T, s nodes) {
		only, err := dlock.New(memory.New(s[1]), &dlock.Options{TTL: ttl})
		ok(t, err)
		theirs, err := only.Mutex("x").Lock(t.Context())
		ok(t, err)
		c := s.open(t, &quorum.Options{Need: 3})
		got := make(chan *dlock.Lease)
		go func() { got <- c.lock("x") }()
		s.waitsAt(1, 1)
		ctx, cancel := context.WithTimeout(t.Context(), backend.FirstAnswer+100*time.Millisecond)
		defer cancel()
		_, err = c.Mutex("x").Lock(ctx)
		is(t, err, dlock.ErrHeld)
		ok(t, theirs.Unlock(t.Context()))
		c.unlock(<-got)
		ok(t, only.Close(t.Context()))
		s.empty(t)
	})
}
