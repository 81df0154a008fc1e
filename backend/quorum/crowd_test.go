package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
	"github.com/dlock-go/dlock/backend/quorum"
)

// A busyNode is one whose client has time for one answer after the other, of all nodes.
type busyNode struct {
	*memory.Backend
	processor chan struct{}
	asked     *atomic.Int64
}

const answering = time.Millisecond

// work takes the time that one answer does.
func (n busyNode) work() {
	n.asked.Add(1)
	n.processor <- struct{}{}
	time.Sleep(answering)
	<-n.processor
}

func (n busyNode) Vote(ctx context.Context, r backend.Request, b backend.Ballot) (*backend.Hold, error) {
	n.work()
	return n.Backend.Vote(ctx, r, b)
}

func (n busyNode) Acquire(ctx context.Context, r backend.Request) (*backend.Hold, error) {
	n.work()
	return n.Backend.Acquire(ctx, r)
}

func (n busyNode) Ping(ctx context.Context) (string, error) {
	n.work()
	return n.Backend.Ping(ctx)
}

// busy returns a quorum whose client is busy.
func (s nodes) busy(t *testing.T, need int) (b *quorum.Backend, asked *atomic.Int64) {
	t.Helper()
	asked = new(atomic.Int64)
	processor := make(chan struct{}, 1)
	var all []backend.Backend
	for i := range s {
		all = append(all, busyNode{memory.New(s[i]), processor, asked})
	}
	b, err := quorum.New(all, &quorum.Options{Need: need, MaxTTL: ttl, Skew: skew})
	ok(t, err)
	return b, asked
}

// A process asks for more locks at once than it can look at the answers of in the time that a
// first answer has. All get theirs, later.
func TestMoreAtOnceThanHaveTime(t *testing.T) {
	const callers = 4000
	for _, need := range []int{0, 3} {
		ripe(t, 3, func(t *testing.T, s nodes) {
			b, _ := s.busy(t, need)
			c, err := dlock.New(b, &dlock.Options{TTL: ttl})
			ok(t, err)
			var all sync.WaitGroup
			var failed atomic.Int64
			start := time.Now()
			for i := range callers {
				all.Go(func() {
					l, err := c.Mutex(fmt.Sprint("x", i)).Lock(t.Context())
					if err != nil {
						failed.Add(1)
						return
					}
					_ = l.Unlock(context.Background())
				})
			}
			all.Wait()
			must(t, time.Since(start) > backend.FirstAnswer, "it took no longer than %v", time.Since(start))
			must(t, failed.Load() == 0, "%d nodes needed: %d of %d have failed", need, failed.Load(), callers)
			ok(t, c.Close(t.Context()))
			s.empty(t)
		})
	}
}

// The same is so for many who want one lock: all wait, and who waits keeps nobody else out.
func TestMoreWaitAtOnceThanHaveTime(t *testing.T) {
	const callers = 4000
	ripe(t, 3, func(t *testing.T, s nodes) {
		b, _ := s.busy(t, 0)
		request := func(name string, n int) backend.Request {
			return backend.Request{Name: name, ID: backend.ID{Client: fmt.Sprint(n), Seq: 1}, Mode: backend.Exclusive, TTL: ttl, Fixed: true, Wait: true}
		}
		_, err := s.open(t, nil).Mutex("x").Lock(t.Context())
		ok(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		var failed atomic.Int64
		for i := range callers {
			all.Go(func() {
				if _, err := b.Acquire(ctx, request("x", i)); !errors.Is(err, backend.ErrHeld) {
					failed.Add(1)
				}
			})
		}
		waiting := func() (n int) {
			for i := range s {
				n += s[i].Waiting("x")
			}
			return n
		}
		for end := time.Now().Add(time.Minute); waiting() < callers && time.Now().Before(end); {
			time.Sleep(time.Second)
		}
		must(t, waiting() == callers, "%d of %d wait", waiting(), callers)
		h, err := b.Acquire(t.Context(), request("y", 1))
		ok(t, err)
		ok(t, b.Release(t.Context(), h))
		cancel()
		all.Wait()
		must(t, failed.Load() == 0, "%d of %d were not told that the lock is held", failed.Load(), callers)
		ok(t, b.Close(t.Context()))
	})
}

// No node answers. However many ask are told so in the time for a first answer, and few of
// them ask the nodes. Who does not wait as long is let go, and so are all at the end.
func TestCrowdWithoutAnswers(t *testing.T) {
	const callers, most = 2000, 3 * 256
	ripe(t, 3, func(t *testing.T, s nodes) {
		b, asked := s.busy(t, 0)
		c, err := dlock.New(b, &dlock.Options{TTL: ttl})
		ok(t, err)
		ok(t, dlock.Do(t.Context(), c.Mutex("warm"), nothing))
		time.Sleep(time.Second)
		s.freeze(3)
		asked.Store(0)
		var all sync.WaitGroup
		start := time.Now()
		for i := range callers {
			all.Go(func() {
				_, err := c.Mutex(fmt.Sprint("x", i)).Lock(t.Context())
				is(t, err, dlock.ErrUnavailable)
				took := time.Since(start)
				must(t, took < backend.FirstAnswer+500*time.Millisecond, "it took %v", took)
			})
		}
		synctest.Wait()
		if n := asked.Load(); n > most {
			t.Errorf("%d requests at once", n)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = c.Mutex("y").Lock(ctx)
		is(t, err, dlock.ErrUnavailable)
		must(t, time.Since(start) <= time.Second+100*time.Millisecond, "it took %v", time.Since(start))
		all.Wait()
		for i := range callers {
			all.Go(func() {
				_, err := c.Mutex(fmt.Sprint("x", i)).Lock(t.Context())
				is(t, err, dlock.ErrClosed)
			})
		}
		synctest.Wait()
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_ = c.Close(ctx)
		all.Wait()
		s.thaw()
	})
}
