package quorum_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
	"github.com/dlock-go/dlock/backend/quorum"
)

// An expirer is a node that ends holds by itself.
type expirer struct{ *memory.Backend }

func (e expirer) Expire(ctx context.Context, h *backend.Hold, d time.Duration) error {
	if _, err := e.Ping(ctx); err != nil {
		return err
	}
	time.AfterFunc(d, func() { _ = e.Release(context.Background(), h) })
	return nil
}

// A noExpirer is a node that ends holds only where their client does.
type noExpirer struct {
	backend.Backend
	backend.Renewer
	backend.TokenRegister
}

// A hold that was given up goes on for as long as it should, also where a node does
// not answer, and not where no node could end it.
func TestExpire(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		var all []backend.Backend
		for i := range s {
			all = append(all, expirer{memory.New(s[i])})
		}
		o := &quorum.Options{MaxTTL: ttl, Skew: skew}
		q, err := quorum.New(all, o)
		ok(t, err)
		r := backend.Request{Name: "x", ID: backend.ID{Client: "a", Seq: 1}, Mode: backend.Exclusive, TTL: ttl}
		h, err := q.Acquire(t.Context(), r)
		ok(t, err)
		time.Sleep(time.Second)
		s[(s.front("x")+1)%3].Freeze()
		before := time.Now()
		ok(t, q.Expire(t.Context(), h, 3*time.Second))
		must(t, time.Since(before) == 0, "it took %v", time.Since(before))
		b := s.open(t, nil)
		next := b.lock("x")
		must(t, time.Since(before) >= 3*time.Second && time.Since(before) < 4*time.Second, "the next came after %v", time.Since(before))
		b.unlock(next)
		s.thaw()
		ok(t, q.Close(t.Context()))

		var keepers []backend.Backend
		for i := range s {
			b := memory.New(s[i])
			keepers = append(keepers, noExpirer{b, b, b})
		}
		q, err = quorum.New(keepers, o)
		ok(t, err)
		h, err = q.Acquire(t.Context(), r)
		ok(t, err)
		is(t, q.Expire(t.Context(), h, time.Second), dlock.ErrUnsupported)
		ok(t, q.Release(t.Context(), h))
		ok(t, q.Close(t.Context()))
	})
}

// Where a node cannot end a hold by itself, the process of the holder keeps it for
// as long as it must be held.
func TestMinHoldWithoutExpirers(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		var keepers []backend.Backend
		for i := range s {
			b := memory.New(s[i])
			keepers = append(keepers, noExpirer{b, b, b})
		}
		q, err := quorum.New(keepers, &quorum.Options{MaxTTL: ttl, Skew: skew})
		ok(t, err)
		c, err := dlock.New(q, &dlock.Options{TTL: ttl})
		ok(t, err)
		l, err := c.Mutex("x", dlock.WithMinHold(3*ttl)).Lock(t.Context())
		ok(t, err)
		start := time.Now()
		ok(t, l.Unlock(t.Context()))
		b := s.open(t, nil)
		next := b.lock("x")
		must(t, time.Since(start) >= 3*ttl && time.Since(start) < 4*ttl, "the next came after %v", time.Since(start))
		b.unlock(next)
		ok(t, c.Close(t.Context()))
	})
}

// A quorum of nodes that can end a hold by themselves for some times only can do so for the
// same times.
func TestCanExpireWhatItsNodesCan(t *testing.T) {
	var all []backend.Backend
	for range 3 {
		all = append(all, shortExpirer{memory.New(memory.NewServer())})
	}
	q, err := quorum.New(all, &quorum.Options{MaxTTL: 24 * time.Hour})
	ok(t, err)
	defer q.Close(t.Context())
	must(t, q.CanExpire(time.Minute), "it cannot expire what its nodes can")
	must(t, !q.CanExpire(time.Hour), "it can expire what its nodes cannot")
}

// A refusing node ends no hold. It says so at once, or after it was asked again for as long as
// the lease lasts, as a server is that is a replica by now.
type refusing struct {
	*distant
	atOnce bool
}

func (n refusing) Release(ctx context.Context, h *backend.Hold) error {
	if !n.atOnce {
		backend.Sleep(ctx, h.TTL)
	}
	return backend.ErrUnavailable
}

// The front of a hold of two nodes refuses to end it, and the third grants late. Unlock does not
// wait for the front once the third has taken that back, as it has no part of the hold then.
// Until it has, Unlock does not say that the lock is free.
func TestUnlockBesideALateGrant(t *testing.T) {
	const late = 100 * time.Millisecond
	for _, c := range []struct{ takesBack, atOnce bool }{{true, false}, {true, true}, {false, false}, {false, true}} {
		ripe(t, 3, func(t *testing.T, s nodes) {
			front := s.front("x")
			third := (front + 1) % 3
			all := make([]backend.Backend, len(s))
			for i := range s {
				d := &distant{Backend: memory.New(s[i])}
				all[i] = d
				if i == third {
					d.trip.Store(int64(late))
				}
				if i == front || i == third && !c.takesBack {
					all[i] = refusing{d, c.atOnce}
				}
			}
			client := over(t, all, nil)
			l, err := client.Mutex("x").Lock(t.Context())
			ok(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			began := time.Now()
			err = l.Unlock(ctx)
			if took := time.Since(began); (err == nil) != c.takesBack || c.takesBack && took > 5*late {
				t.Errorf("third takes its grant back: %v, the front refuses at once: %v: the error is %v after %v", c.takesBack, c.atOnce, err, took)
			}
			time.Sleep(3 * ttl) // until it is not asked to end that any more
		})
	}
}

// A shortExpirer can have a hold end by itself within a minute.
type shortExpirer struct{ *memory.Backend }

func (shortExpirer) CanExpire(d time.Duration) bool { return d <= time.Minute }

// A denying node ends no hold, and says that it must not, until it is allowed to.
type denying struct {
	expirer
	denies atomic.Bool
	asked  atomic.Int32
}

func (n *denying) allowed() error {
	n.asked.Add(1)
	if n.denies.Load() {
		return backend.ErrAuth
	}
	return nil
}

func (n *denying) Release(ctx context.Context, h *backend.Hold) error {
	if err := n.allowed(); err != nil {
		return err
	}
	return n.expirer.Release(ctx, h)
}

func (n *denying) Expire(ctx context.Context, h *backend.Hold, d time.Duration) error {
	if err := n.allowed(); err != nil {
		return err
	}
	return n.expirer.Expire(ctx, h, d)
}

// denyingNodes are nodes of which the first of those deny to end holds.
func (s nodes) denyingNodes(which ...int) (all []backend.Backend, deniers []*denying) {
	for i := range s {
		d := &denying{expirer: expirer{memory.New(s[i])}}
		d.denies.Store(slices.Contains(which, i))
		all, deniers = append(all, d), append(deniers, d)
	}
	return all, deniers
}

// A node denies to end a hold for a moment. It ends its part soon after, and not after a lease:
// whoever waits there, if it is the front, would wait for as long.
func TestDeniedReleaseIsRepeated(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		all, deniers := s.denyingNodes(s.front("x"))
		l, err := over(t, all, nil).Mutex("x").Lock(t.Context())
		ok(t, err)
		ok(t, l.Unlock(t.Context()))
		time.Sleep(time.Second)
		deniers[s.front("x")].denies.Store(false)
		b, began := s.open(t, nil), time.Now()
		b.unlock(b.lock("x"))
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("the next has the lock after %v", took)
		}
	})
}

// All nodes deny to end a hold, and the client repeats its request for a lease. No node is asked by
// more than that and one goroutine of the quorum.
func TestDeniedReleaseIsRepeatedOnce(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		all, deniers := s.denyingNodes(0, 1, 2)
		l, err := over(t, all, nil).Mutex("x").Lock(t.Context())
		ok(t, err)
		is(t, l.Unlock(t.Context()), dlock.ErrAuth)
		time.Sleep(2 * ttl)
		for i, n := range deniers {
			if asked := n.asked.Load(); asked > 60 {
				t.Errorf("node %d was asked %d times", i+1, asked)
			}
		}
	})
}

// Of the two nodes that a hold has one denies to have it end by itself. It keeps its part for its
// lease, which is long enough, so that Unlock has no reason to fail.
func TestDeniedExpiry(t *testing.T) {
	for _, c := range []struct {
		minHold time.Duration
		want    error
	}{{ttl / 2, nil}, {2 * ttl, dlock.ErrAuth}} {
		ripe(t, 3, func(t *testing.T, s nodes) {
			front := s.front("x")
			all, _ := s.denyingNodes(front)
			s[(front+1)%3].Freeze()
			client := over(t, all, &quorum.Options{MaxTTL: 3 * ttl, Skew: skew})
			time.Sleep(3 * ttl)
			l, err := client.Mutex("x", dlock.WithMinHold(c.minHold)).Lock(t.Context())
			ok(t, err)
			began := time.Now()
			err = l.Unlock(t.Context())
			if !errors.Is(err, c.want) {
				t.Errorf("to be held for %v: %v, want %v", c.minHold, err, c.want)
			}
			s.thaw()
			b := s.open(t, &quorum.Options{MaxTTL: 3 * ttl, Skew: skew})
			b.unlock(b.lock("x"))
			if took := time.Since(began); c.want == nil && took < c.minHold {
				t.Errorf("the next has the lock after %v", took)
			}
		})
	}
}
