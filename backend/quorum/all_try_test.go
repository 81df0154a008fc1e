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

// Who queued while the first of the nodes was away, where all are needed, and who queued after that wait
// at two nodes. The lock is not left free for seconds when its holder goes.
func TestTwoFrontsNeedingAll(t *testing.T) {
	in(t, 3, func(t *testing.T, s nodes) {
		all := &quorum.Options{Need: 3}
		a, b, c := s.open(t, all), s.open(t, all), s.open(t, all)
		b.unlock(b.lock("y"))
		c.unlock(c.lock("y"))
		l := a.lock("x")
		got := make(chan time.Time, 2)
		wait := func(c *client) {
			l := c.lock("x")
			got <- time.Now()
			c.unlock(l)
		}
		go wait(b)
		time.Sleep(time.Second)
		b.cut(1)
		time.Sleep(10 * time.Second)
		b.heal()
		time.Sleep(time.Minute)
		go wait(c)
		time.Sleep(time.Minute)
		free := time.Now()
		a.unlock(l)
		for range 2 {
			if took := (<-got).Sub(free); took > time.Second {
				t.Errorf("it was free for %v", took)
			}
		}
	})
}
