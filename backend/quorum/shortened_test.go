package quorum_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
)

// Of two nodes that have renewed a hold one loses it, and the third, which has not, keeps it for less
// long. The lease ends with that from the moment of the loss, also for a look after a stop of the
// process, before any timer has fired.
func TestLossShortensTheLease(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		a := s.open(t, nil)
		l := a.lock("x")
		granted := time.Now()
		time.Sleep(ttl / 6)
		a.links[2].Cut()
		defer a.heal()
		time.Sleep(ttl / 4) // the others are renewed
		must(t, l.Until().After(granted.Add(ttl)), "not renewed")
		s[0].Evict("x")
		synctest.Wait()
		if late := l.Until().Sub(granted.Add(ttl - backend.Margin(ttl))); late > 0 {
			t.Errorf("the lease ends %v after a majority has let go of it", late)
		}
	})
}

// A shortObserver is told when a hold ends earlier.
type shortObserver struct {
	lossObserver
	ends chan time.Time
}

func (o shortObserver) Shortened(sent time.Time, granted time.Duration) {
	o.ends <- sent.Add(granted)
}

// A node loses a hold just after enough have renewed it, and before its holder has been told of that: it
// is told anew of the end, or would go by the renewal.
func TestLossBeforeARenewalIsReported(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		b := s.backendOf(t)
		o := shortObserver{lossObserver{make(chan error, 1)}, make(chan time.Time, 10)}
		h, err := b.Acquire(t.Context(), backend.Request{Name: "x", Mode: backend.Exclusive, TTL: ttl, Observer: o})
		ok(t, err)
		synctest.Wait() // all nodes have granted
		end := h.Sent.Add(h.Granted)
		s[2].Freeze()
		defer s.thaw()
		time.Sleep(ttl / 3)
		b.Renew(t.Context(), []*backend.Hold{h}, func(_ *backend.Hold, err error) {
			ok(t, err)
			s[0].Evict("x")
			<-o.ends
		})
		if got := <-o.ends; !got.Equal(end) {
			t.Errorf("the hold ends at %v, want %v", got, end)
		}
	})
}

// A refusingNode refuses to renew while it is down.
type refusingNode struct {
	*memory.Backend
	down atomic.Bool
}

func (n *refusingNode) Renew(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	if !n.down.Load() {
		n.Backend.Renew(ctx, holds, report)
		return
	}
	for _, h := range holds {
		report(h, errDead)
	}
}

// One of three nodes is down for half of a lease, and is back with its data. Then another loses the hold.
// The two that are left have had it all the time, and answer: they are renewed before the older part runs
// out.
func TestLossBesideAPartThatIsOld(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		n := &refusingNode{Backend: memory.New(s[2])}
		c := over(t, []backend.Backend{memory.New(s[0]), memory.New(s[1]), n}, nil)
		l, err := c.Mutex("x").Lock(t.Context())
		ok(t, err)
		time.Sleep(ttl * 3 / 10)
		n.down.Store(true)
		time.Sleep(ttl * 4 / 10) // it misses two renewals
		n.down.Store(false)
		s[0].Evict("x")
		time.Sleep(ttl)
		ok(t, l.Err())
		ok(t, l.Unlock(t.Context()))
	})
}
