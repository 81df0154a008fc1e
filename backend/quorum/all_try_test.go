package quorum_test

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
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
