package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
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

func TestMinorityDown(t *testing.T) {
	for down := range 3 {
		ripe(t, 5, func(t *testing.T, s nodes) {
			a, b := s.open(t, nil), s.open(t, nil)
			s.freeze(down)
			l := a.lock("x")
			_, err := b.try("x")
			is(t, err, dlock.ErrHeld)
			time.Sleep(3 * ttl)
			ok(t, l.Err())
			a.unlock(l)
			b.unlock(b.lock("x"))
			s.thaw()
			s.empty(t)
		})
	}
}

func TestMajorityDown(t *testing.T) {
	ripe(t, 5, func(t *testing.T, s nodes) {
		c := s.open(t, nil)
		s.freeze(3)
		for _, lock := range []func(context.Context) (*dlock.Lease, error){c.Mutex("x").Lock, c.Mutex("x").TryLock} {
			start := time.Now()
			_, err := lock(t.Context())
			is(t, err, dlock.ErrUnavailable)
			must(t, !errors.Is(err, dlock.ErrHeld), "a failure is not a held lock: %v", err)
			must(t, time.Since(start) < ttl, "failed after %v", time.Since(start))
		}
		s.thaw()
		s.empty(t)
		c.unlock(c.lock("x"))
	})
}

// The slow node grants after its limit: nobody needs that any more.
func TestTwoDownOneSlow(t *testing.T) {
	ripe(t, 5, func(t *testing.T, s nodes) {
		c := s.open(t, nil)
		s.freeze(3)
		time.AfterFunc(4*time.Second, s[2].Thaw)
		_, err := c.try("x")
		is(t, err, dlock.ErrUnavailable)
		time.Sleep(5 * time.Second)
		s.thaw()
		s.empty(t)
	})
}

// One node does not vote yet, and another is late: there is no majority without it, so who
// tries asks it all the same.
func TestTryWithOneNewAndOneLate(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		c := s.open(t, nil)
		s[2].Wipe()
		c.unlock(c.lock("warm"))
		c.links[0].Delay(200 * time.Millisecond)
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.unlock(c.lock("x"))
		}()
		time.Sleep(100 * time.Millisecond)
		l, err := c.try("y")
		ok(t, err)
		c.unlock(l)
		<-done
	})
}

// One node was silent, and is back, while another has forgotten what it knew; nobody has asked for a
// lock meanwhile. There is no majority without the first, so who tries asks it all the same.
func TestTryWithOneNewAndOneBack(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		c := s.open(t, nil)
		c.links[0].Cut()
		for range 3 {
			c.unlock(c.lock("x"))
			time.Sleep(time.Minute) // nothing that was sent meanwhile is answered later
		}
		c.heal()
		c.links[0].Delay(20 * time.Millisecond) // the other's word is there first
		s[1].Wipe()
		l, err := c.try("x")
		ok(t, err)
		c.unlock(l)
	})
}

// One node was silent, and is back, while another is silent from now on; nobody has asked for a lock
// meanwhile. There is no majority without the first, so who asks for one is not failed by the second.
func TestOneBackWhileAnotherGoes(t *testing.T) {
	for what, get := range map[string]func(*dlock.Mutex, context.Context) (*dlock.Lease, error){
		"lock": (*dlock.Mutex).Lock, "trylock": (*dlock.Mutex).TryLock,
	} {
		for _, which := range [][2]int{{0, 1}, {1, 2}, {2, 0}} {
			ripe(t, 3, func(t *testing.T, s nodes) {
				c := s.open(t, nil)
				c.links[which[0]].Cut()
				for range 3 {
					c.unlock(c.lock("x"))
					time.Sleep(time.Minute)
				}
				c.heal()
				c.links[which[1]].Cut()
				start := time.Now()
				l, err := get(c.Mutex("x"), t.Context())
				if took := time.Since(start); err != nil || took > time.Second {
					t.Fatalf("%s, node %d is back and %d has gone: %v, after %v", what, which[0], which[1], err, took)
				}
				c.unlock(l)
				c.heal()
			})
		}
	}
}

// votesCounted is a node that counts the requests for a lock.
type votesCounted struct {
	*memory.Backend
	votes *atomic.Int32
}

func (n votesCounted) Vote(ctx context.Context, r backend.Request, b backend.Ballot) (*backend.Hold, error) {
	n.votes.Add(1)
	return n.Backend.Vote(ctx, r, b)
}

// Who tries a lock that is held asks each node once, also if one of them is dead.
func TestTryIsRefusedInOneRound(t *testing.T) {
	for dead := range 4 { // 3: none
		ripe(t, 3, func(t *testing.T, s nodes) {
			var votes atomic.Int32
			var all []backend.Backend
			for i := range s {
				all = append(all, votesCounted{memory.New(s[i]), &votes})
			}
			a, b := s.open(t, nil), over(t, all, nil)
			l := a.lock("x")
			synctest.Wait()
			if dead < 3 {
				s[dead].Freeze()
			}
			for range 3 {
				votes.Store(0)
				_, err := b.Mutex("x").TryLock(t.Context())
				is(t, err, dlock.ErrHeld)
				must(t, votes.Load() <= 3, "it took %d requests", votes.Load())
			}
			s.thaw()
			a.unlock(l)
		})
	}
}

// The clocks of a minority are set forward by more than a lease. All nodes have the hold, so
// nobody else gets the lock.
func TestClocksOfAMinorityStep(t *testing.T) {
	ripe(t, 5, func(t *testing.T, s nodes) {
		a, b := s.open(t, nil), s.open(t, nil)
		l := a.lock("x")
		synctest.Wait()
		for _, ahead := range s[1:3] {
			ahead.SetClock(2 * ttl)
		}
		_, err := b.try("x")
		is(t, err, dlock.ErrHeld)
		time.Sleep(3 * ttl)
		ok(t, l.Err())
		a.unlock(l)
		b.unlock(b.lock("x"))
	})
}

// A node that grants late joins the hold, which then survives the loss of
// another.
func TestLateGrantJoins(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		a, b := s.open(t, nil), s.open(t, nil)
		s.freeze(1)
		time.AfterFunc(100*time.Millisecond, s[0].Thaw)
		l := a.lock("x")
		time.Sleep(time.Second)
		s[1].Freeze()
		_, err := b.try("x")
		must(t, err != nil, "a second holder")
		time.Sleep(3 * ttl)
		ok(t, l.Err())
		a.unlock(l)
		s.thaw()
		s.empty(t)
	})
}

// A grant that comes after the hold has been released is given back.
func TestLateGrantAfterRelease(t *testing.T) {
	for late := range 3 {
		ripe(t, 3, func(t *testing.T, s nodes) {
			c := s.open(t, nil)
			s[late].Freeze()
			c.unlock(c.lock("x"))
			s[late].Thaw()
			s.empty(t)
		})
	}
}

// A hold takes back the place of a node that was away.
func TestNodeComesBack(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		a, b := s.open(t, nil), s.open(t, nil)
		s.freeze(1)
		l := a.lock("x")
		time.Sleep(ttl)
		for i := range s { // one after the other, each for three leases
			s.thaw()
			time.Sleep(ttl)
			s[i].Freeze()
			time.Sleep(3 * ttl)
			ok(t, l.Err())
			_, err := b.try("x")
			must(t, err != nil, "a second holder")
		}
		s.thaw()
		a.unlock(l)
		s.empty(t)
	})
}

// The same with nodes that forget everything.
func TestNodesRestartEmptyUnderAHolder(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		a, b := s.open(t, nil), s.open(t, nil)
		l := a.lock("x")
		synctest.Wait() // until the last of the nodes has it, too
		for i := range s {
			s[i].Wipe()
			_, err := b.try("x")
			must(t, err != nil, "a second holder")
			time.Sleep(delay + ttl)
			ok(t, l.Err())
		}
		a.unlock(l)
		next := b.lock("x")
		must(t, next.Token() > l.Token(), "token %d came after %d", next.Token(), l.Token())
		b.unlock(next)
	})
}

// A node that restarted empty could make a second majority. It stays out until
// the lease of whatever it has forgotten has run out.
func TestRestartedNodeStaysOut(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		a, b := s.open(t, nil), s.open(t, nil)
		s[2].Freeze()
		l := a.lock("x")
		a.cut(3) // it cannot renew, and knows nothing
		s[2].Thaw()
		s[0].Wipe()
		for range 8 {
			time.Sleep(time.Second)
			if early, err := b.try("x"); err == nil {
				must(t, l.Err() != nil, "a second holder")
				b.unlock(early)
			}
		}
		next := b.lock("x")
		is(t, l.Err(), dlock.ErrLost)
		must(t, next.Token() > l.Token(), "token %d came after %d", next.Token(), l.Token())
		b.unlock(next)
		a.heal()
	})
}

func TestNewInstallationWaitsOnce(t *testing.T) {
	in(t, 3, func(t *testing.T, s nodes) {
		a, b := s.open(t, nil), s.open(t, nil)
		_, err := a.try("x")
		is(t, err, dlock.ErrUnavailable)
		start := time.Now()
		a.unlock(a.lock("x"))
		waited := time.Since(start)
		must(t, waited > ttl && waited < delay, "waited %v", waited)
		start = time.Now()
		b.unlock(b.lock("x"))
		must(t, time.Since(start) == 0, "waited again: %v", time.Since(start))
	})
}

// The holder cannot reach a majority any more: it knows before another has the
// lock.
func TestLostBeforeNextHolder(t *testing.T) {
	ripe(t, 5, func(t *testing.T, s nodes) {
		for cut := 3; cut <= 5; cut++ {
			a, b := s.open(t, nil), s.open(t, nil)
			l := a.lock("x")
			a.cut(cut)
			next := b.lock("x")
			select {
			case <-l.Done():
			default:
				t.Error("the next has the lock, and the holder does not know")
			}
			is(t, l.Err(), dlock.ErrLost)
			b.unlock(next)
			a.heal()
		}
	})
}

func TestMinorityCutLosesNothing(t *testing.T) {
	ripe(t, 5, func(t *testing.T, s nodes) {
		a := s.open(t, nil)
		l := a.lock("x")
		a.cut(2)
		time.Sleep(5 * ttl)
		ok(t, l.Err())
		a.unlock(l)
	})
}

// Lost on a majority of the nodes is lost, on fewer it is not.
func TestEvicted(t *testing.T) {
	ripe(t, 5, func(t *testing.T, s nodes) {
		a := s.open(t, nil)
		l := a.lock("x")
		synctest.Wait() // all nodes have granted
		for i := range 2 {
			s[i].Evict("x")
		}
		time.Sleep(ttl / 5) // before a renewal takes them back
		ok(t, l.Err())
		s[2].Evict("x")
		<-l.Done()
		is(t, l.Err(), dlock.ErrLost)
		s.empty(t)
	})
}

// A deafNode is one whose client hears of no loss before it renews, which the node answers
// late.
type deafNode struct {
	*memory.Backend
	late time.Duration
}

func (n deafNode) Vote(ctx context.Context, r backend.Request, b backend.Ballot) (*backend.Hold, error) {
	r.Observer = nil
	return n.Backend.Vote(ctx, r, b)
}

func (n deafNode) Renew(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	n.Backend.Renew(ctx, holds, func(h *backend.Hold, err error) {
		time.Sleep(n.late)
		report(h, err)
	})
}

// The nodes lose a hold within one renewal, and its client misses it at one after the other.
// It does not take back the votes that it misses first: nobody has the lock any more.
func TestEvictedOneAfterTheOther(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		var all []backend.Backend
		for i, late := range []time.Duration{0, 20 * time.Millisecond, 400 * time.Millisecond} {
			all = append(all, deafNode{memory.New(s[i]), late})
		}
		l, err := over(t, all, nil).Mutex("x").Lock(t.Context())
		ok(t, err)
		time.Sleep(ttl/3 - time.Second)
		s[0].Evict("x")
		time.Sleep(2 * time.Second) // that renewal has not found it there
		s[1].Evict("x")
		s[2].Evict("x")
		time.Sleep(ttl / 2)
		is(t, l.Err(), dlock.ErrLost)
		is(t, l.Unlock(t.Context()), dlock.ErrLost)
		s.empty(t)
	})
}

// A vote that a renewal misses is taken back by the next one.
func TestEvictedAtAMinority(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		a, b := s.open(t, nil), s.open(t, nil)
		l := a.lock("x")
		synctest.Wait()
		for range 2 {
			for i := range s {
				s[i].Evict("x")
				time.Sleep(ttl)
				ok(t, l.Err())
				_, err := b.try("x")
				is(t, err, dlock.ErrHeld)
			}
		}
		a.unlock(l)
		s.empty(t)
	})
}

// A node takes away what it has granted before the answer has arrived. It is asked again.
func TestGrantTakenAwayOnItsWay(t *testing.T) {
	const trip = 40 * time.Millisecond
	for node := range 3 {
		ripe(t, 3, func(t *testing.T, s nodes) {
			c, _ := s.far(t, trip, trip, trip)
			for name, lock := range map[string]func(context.Context) (*dlock.Lease, error){
				"Lock":    c.Mutex("x").Lock,
				"TryLock": c.Mutex("x").TryLock,
			} {
				ctx, cancel := context.WithTimeout(t.Context(), ttl)
				defer cancel()
				began := time.Now()
				time.AfterFunc(trip*3/4, func() { s[node].Evict("x") })
				l, err := lock(ctx)
				ok(t, err)
				must(t, time.Since(began) <= 3*trip, "node %d: %s took %v", node+1, name, time.Since(began))
				ok(t, l.Unlock(t.Context()))
				time.Sleep(time.Second)
			}
			s.empty(t)
		})
	}
}

// The front takes away what it has granted, and says nothing when it is asked again. The
// others are enough, as where it says nothing from the start.
func TestGrantTakenAwayByASilentFront(t *testing.T) {
	const trip = 40 * time.Millisecond
	ripe(t, 3, func(t *testing.T, s nodes) {
		front := s.front("x")
		trips := []time.Duration{trip, trip, trip}
		trips[front] = 2 * trip // its answer is the last
		c, _ := s.far(t, trips...)
		for name, lock := range map[string]func(context.Context) (*dlock.Lease, error){
			"Lock":    c.Mutex("x").Lock,
			"TryLock": c.Mutex("x").TryLock,
		} {
			began := time.Now()
			time.AfterFunc(trip*3/2, func() {
				s[front].Evict("x")
				s[front].Freeze()
			})
			l, err := lock(t.Context())
			ok(t, err)
			must(t, time.Since(began) <= 20*trip, "%s took %v", name, time.Since(began))
			s[front].Thaw()
			ok(t, l.Unlock(t.Context()))
			time.Sleep(time.Second)
		}
		s.empty(t)
	})
}

// lateNode is a node whose answers take longer than a lease.
type lateNode struct{ *memory.Backend }

func (n lateNode) Acquire(ctx context.Context, r backend.Request) (*backend.Hold, error) {
	h, err := n.Backend.Acquire(ctx, r)
	if err == nil {
		h.Sent = h.Sent.Add(-2 * ttl)
	}
	return h, err
}

// Nobody has the lock, but no grant comes in time to be of use.
func TestGrantsComeTooLate(t *testing.T) {
	in(t, 2, func(t *testing.T, s nodes) {
		c := over(t, []backend.Backend{lateNode{memory.New(s[0])}, lateNode{memory.New(s[1])}}, &quorum.Options{Need: 2})
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err := c.Mutex("x").Lock(ctx)
		is(t, err, dlock.ErrUnavailable)
	})
}

// slowToRenew is a node that renews when it is let.
type slowToRenew struct {
	*memory.Backend
	let chan struct{}
}

func (n slowToRenew) Renew(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	<-n.let
	n.Backend.Renew(ctx, holds, report)
}

// A node renews and then forgets the hold, before the other one that is needed has
// renewed it.
func TestForgottenDuringRenewal(t *testing.T) {
	in(t, 2, func(t *testing.T, s nodes) {
		let := make(chan struct{})
		c := over(t, []backend.Backend{memory.New(s[0]), slowToRenew{memory.New(s[1]), let}}, &quorum.Options{Need: 2})
		lease, err := c.Mutex("x").Lock(t.Context())
		ok(t, err)
		time.Sleep(ttl/3 + time.Millisecond)
		s[0].Evict("x")
		synctest.Wait()
		close(let)
		<-lease.Done()
		is(t, lease.Err(), dlock.ErrLost)
	})
}

// Clients that come at once get some of the nodes each. All of them get the lock
// in the end, one at a time.
func TestSplitVotes(t *testing.T) {
	for _, n := range []int{3, 5} {
		ripe(t, n, func(t *testing.T, s nodes) {
			var all sync.WaitGroup
			var last uint64
			inside := 0
			for i := range 20 {
				c := s.open(t, nil)
				all.Go(func() {
					for j := range n { // each asks one node first
						c.links[j].DropReply()
						if j == i%n {
							break
						}
					}
					for range 20 {
						l := c.lock("x")
						inside++
						must(t, inside == 1, "%d inside", inside)
						must(t, l.Token() > last, "token %d came after %d", l.Token(), last)
						last = l.Token()
						time.Sleep(time.Millisecond)
						inside--
						c.unlock(l)
					}
				})
			}
			all.Wait()
			s.empty(t)
		})
	}
}

// Two that must not wait get some of the nodes each: one of them wins.
func TestSplitTries(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		for range 50 {
			var all sync.WaitGroup
			leases := make([]*dlock.Lease, 10)
			for i := range leases {
				c := s.open(t, nil)
				all.Go(func() {
					var err error
					if leases[i], err = c.try("x"); err != nil {
						is(t, err, dlock.ErrHeld)
					}
				})
			}
			all.Wait()
			won := 0
			for _, l := range leases {
				if l != nil {
					won++
					ok(t, l.Unlock(t.Context()))
				}
			}
			must(t, won == 1, "%d of 10 won", won)
		}
		s.empty(t)
	})
}

func TestTTLBound(t *testing.T) {
	in(t, 3, func(t *testing.T, s nodes) {
		_, err := s.open(t, nil).Mutex("x", dlock.WithTTL(ttl+1)).Lock(t.Context())
		is(t, err, dlock.ErrInvalidTTL)
		for i := range s {
			must(t, s[i].Ops() == 0, "a refused request was sent")
		}
	})
}

func TestDowngradeAtAMajority(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		a, b := s.open(t, nil), s.open(t, nil)
		s[0].Freeze()
		l, err := a.RWMutex("x").Lock(t.Context())
		ok(t, err)
		ok(t, l.Downgrade(t.Context()))
		r, err := b.RWMutex("x").RLock(t.Context())
		ok(t, err)
		_, err = b.try("x")
		is(t, err, dlock.ErrHeld)
		s[0].Thaw()
		time.Sleep(ttl)
		ok(t, l.Err())
		s[1].Freeze() // the node that was away has both of them now
		time.Sleep(3 * ttl)
		ok(t, l.Err())
		ok(t, r.Err())
		s.thaw()
		a.unlock(l)
		b.unlock(r)
		b.unlock(b.lock("x"))
		s.empty(t)
	})
}

// lateVote is a node whose first grant takes some time to arrive.
type lateVote struct {
	*memory.Backend
	asked *atomic.Bool
}

func (n lateVote) Vote(ctx context.Context, r backend.Request, b backend.Ballot) (*backend.Hold, error) {
	h, err := n.Backend.Vote(ctx, r, b)
	if n.asked.CompareAndSwap(false, true) {
		time.Sleep(20 * time.Millisecond)
	}
	return h, err
}

// A node whose exclusive grant arrives during a downgrade is asked for a shared one, and makes up the
// majority beside a node that has fallen silent.
func TestDowngradeWhileANodeJoinsBesideASilentOne(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		all := s.links()
		all[2] = lateVote{memory.New(s[2]), new(atomic.Bool)}
		c := over(t, all, nil)
		l, err := c.RWMutex("x").Lock(t.Context())
		ok(t, err)
		s[0].Freeze()
		start := time.Now()
		ok(t, l.Downgrade(t.Context()))
		if took := time.Since(start); took > time.Second {
			t.Errorf("it takes %v", took)
		}
		time.Sleep(3 * ttl)
		ok(t, l.Err())
		s.thaw()
		ok(t, l.Unlock(t.Context()))
	})
}

// A node that lets a hold in during an entry makes up the majority beside a node that has fallen silent.
func TestEntryWhileANodeJoinsBesideASilentOne(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		all := s.links()
		all[2] = lateVote{memory.New(s[2]), new(atomic.Bool)}
		c := over(t, all, nil)
		l, err := c.Mutex("x").Lock(t.Context())
		ok(t, err)
		s[0].Freeze()
		start := time.Now()
		in, err := c.Mutex("x").Lock(l.Context(t.Context()))
		ok(t, err)
		if took := time.Since(start); took > time.Second {
			t.Errorf("it takes %v", took)
		}
		s.thaw()
		ok(t, in.Unlock(t.Context()))
		ok(t, l.Unlock(t.Context()))
	})
}

func TestDefaultsFit(t *testing.T) {
	in(t, 3, func(t *testing.T, s nodes) {
		c := s.open(t, &quorum.Options{})
		l, err := c.Mutex("x", dlock.WithTTL(quorum.DefaultMaxTTL)).Lock(t.Context())
		ok(t, err)
		c.unlock(l)
	})
}

// A node refuses, because it has the end of another hold late. A hold that ends at once does
// not ask it again, and one that lasts gets it.
func TestMissingNodeIsAskedInAMoment(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		late := (s.front("x") + 1) % 3
		stranger := memory.New(s[late])
		r := backend.Request{Name: "x", ID: backend.ID{Client: "stranger", Seq: 1}, Mode: backend.Exclusive, TTL: ttl}
		h, err := stranger.Acquire(t.Context(), r)
		ok(t, err)
		trips := make([]time.Duration, len(s))
		trips[late] = time.Millisecond // it answers when the lock is won
		far, _ := s.far(t, trips...)
		c := &client{t: t, Client: far}
		before := s[late].Ops()
		l := c.lock("x")
		time.Sleep(5 * time.Millisecond)
		c.unlock(l)
		time.Sleep(time.Second)
		if n := s[late].Ops() - before; n != 1 {
			t.Errorf("%d requests to a node that refuses", n)
		}
		l = c.lock("x")
		ok(t, stranger.Release(t.Context(), h))
		time.Sleep(100 * time.Millisecond)
		r.ID.Seq++
		_, err = stranger.Acquire(t.Context(), r)
		is(t, err, backend.ErrHeld)
		c.unlock(l)
		ok(t, stranger.Close(t.Context()))
		s.empty(t)
	})
}

// A denyingNode grants nothing.
type denyingNode struct{ *memory.Backend }

func (denyingNode) Vote(context.Context, backend.Request, backend.Ballot) (*backend.Hold, error) {
	return nil, backend.ErrAuth
}

// One of three nodes denies, and one is known to be silent: who tries hears of that at once, and what
// the silent one is asked does not pile up there.
func TestTriesBesideADenyingAndASilentNode(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		var votes atomic.Int32
		c := over(t, []backend.Backend{votesCounted{memory.New(s[0]), &votes}, denyingNode{memory.New(s[1])}, memory.New(s[2])}, nil)
		s.freeze(1)
		defer s.thaw()
		_, err := c.Mutex("x").TryLock(t.Context())
		is(t, err, dlock.ErrAuth)
		time.Sleep(10 * time.Second)
		before, began := votes.Load(), time.Now()
		_, err = c.Mutex("x").TryLock(t.Context())
		is(t, err, dlock.ErrAuth)
		took := time.Since(began)
		must(t, took < time.Second, "it took %v", took)
		for i := range 200 {
			go c.Mutex(fmt.Sprint("x", i)).TryLock(t.Context())
			time.Sleep(5 * time.Millisecond)
		}
		n := votes.Load() - before
		must(t, n < 20, "%d requests to a node that is known to be silent", n)
		time.Sleep(10 * time.Second)
	})
}

// One of three nodes denies, and another fails for a moment: who waits has the lock as that one is back. If
// it stays away, the denial is told within the time of a first answer.
func TestWaitsBesideADenyingNode(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		failing := memory.New(s[0])
		c := over(t, []backend.Backend{failing, denyingNode{memory.New(s[1])}, memory.New(s[2])}, nil)
		failing.FailNext(backend.Fail(backend.ErrUnavailable, errors.New("all connections are in use")))
		began := time.Now()
		l, err := c.Mutex("x").Lock(t.Context())
		ok(t, err)
		took := time.Since(began)
		must(t, took < time.Second, "it took %v", took)
		ok(t, l.Unlock(t.Context()))
		s.freeze(1)
		defer s.thaw()
		began = time.Now()
		_, err = c.Mutex("x").Lock(t.Context())
		is(t, err, dlock.ErrAuth)
		took = time.Since(began)
		must(t, took <= 3*time.Second, "it took %v", took)
	})
}

// A failingNode answers pings. The next votes that it is asked for fail.
type failingNode struct {
	*memory.Backend
	votes *atomic.Int32
}

func (n failingNode) Vote(ctx context.Context, r backend.Request, v backend.Ballot) (*backend.Hold, error) {
	if n.votes.Add(-1) >= 0 {
		return nil, backend.Fail(backend.ErrUnavailable, errors.New("all connections are in use"))
	}
	return n.Backend.Vote(ctx, r, v)
}

// besideADenyingNode has somebody ask for a lock at three nodes, of which one grants, one denies, and one answers pings
// and fails for so many votes.
func besideADenyingNode(t *testing.T, ask func(t *testing.T, holder *client, fail func(votes int32), m *dlock.Mutex)) {
	t.Helper()
	for i := range 3 { // any node is the front of one of the names, or most
		ripe(t, 3, func(t *testing.T, s nodes) {
			var votes atomic.Int32
			c := over(t, []backend.Backend{failingNode{memory.New(s[0]), &votes}, denyingNode{memory.New(s[1])}, memory.New(s[2])}, nil)
			ask(t, s.open(t, nil), votes.Store, c.Mutex(fmt.Sprint("x", i)))
		})
	}
}

// A node fails for a moment when somebody has waited for longer than a first answer may take.
func TestWaitsBesideADenyingNodeLater(t *testing.T) {
	besideADenyingNode(t, func(t *testing.T, holder *client, fail func(int32), m *dlock.Mutex) {
		held := holder.lock(m.Name())
		time.AfterFunc(backend.FirstAnswer+2*time.Second, func() {
			fail(1)
			holder.unlock(held)
		})
		ok(t, do(t.Context(), m))
	})
}

// A node fails for a moment when somebody asks, and again as the lock is free, much later.
func TestWaitsBesideADenyingNodeTwice(t *testing.T) {
	besideADenyingNode(t, func(t *testing.T, holder *client, fail func(int32), m *dlock.Mutex) {
		held := holder.lock(m.Name())
		fail(1)
		time.AfterFunc(backend.FirstAnswer+2*time.Second, func() {
			fail(1)
			holder.unlock(held)
		})
		ok(t, do(t.Context(), m))
	})
}

// A pickyNode denies, or fails.
type pickyNode struct {
	*memory.Backend
	fails *atomic.Bool
}

func (n pickyNode) Vote(context.Context, backend.Request, backend.Ballot) (*backend.Hold, error) {
	if n.fails.Load() {
		return nil, backend.Fail(backend.ErrUnavailable, errors.New("all connections are in use"))
	}
	return nil, backend.ErrAuth
}

// Two of three nodes fail for long, and then one of them denies again: the other has as long as before.
func TestWaitsBesideANodeThatDeniesAgain(t *testing.T) {
	for i := range 3 {
		ripe(t, 3, func(t *testing.T, s nodes) {
			var votes atomic.Int32
			var fails atomic.Bool
			c := over(t, []backend.Backend{failingNode{memory.New(s[0]), &votes}, pickyNode{memory.New(s[1]), &fails}, memory.New(s[2])}, nil)
			holder, m := s.open(t, nil), c.Mutex(fmt.Sprint("x", i))
			held := holder.lock(m.Name())
			votes.Store(1)
			time.AfterFunc(backend.FirstAnswer+time.Second, func() {
				fails.Store(true)
				votes.Store(1e6)
				holder.unlock(held)
			})
			time.AfterFunc(2*backend.FirstAnswer+time.Second, func() {
				fails.Store(false)
				votes.Store(1)
			})
			ok(t, do(t.Context(), m))
		})
	}
}

// A node fails for good. Who waits beside one that denies is told of that, whether it knows that the lock was held or
// not, and the front is left to others.
func TestDeniedBesideANodeThatFails(t *testing.T) {
	for _, held := range []bool{false, true} {
		besideADenyingNode(t, func(t *testing.T, holder *client, fail func(int32), m *dlock.Mutex) {
			fail(1e6)
			free := time.Now()
			if held {
				free = free.Add(backend.FirstAnswer + 2*time.Second)
				l := holder.lock(m.Name())
				time.AfterFunc(time.Until(free), func() { holder.unlock(l) })
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := m.Lock(ctx)
			is(t, err, dlock.ErrAuth)
			took := time.Since(free)
			must(t, took <= backend.FirstAnswer, "it took %v", took)
		})
	}
}

// Of three nodes two refuse all connections. Who waits is told that, and not only that none has answered.
func TestErrorSaysWhatNodesSay(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		var votes atomic.Int32
		votes.Store(1e6)
		c := over(t, []backend.Backend{failingNode{memory.New(s[0]), &votes}, failingNode{memory.New(s[1]), &votes}, memory.New(s[2])}, nil)
		for i := range 20 {
			_, err := c.Mutex(fmt.Sprint("x", i)).Lock(t.Context())
			is(t, err, dlock.ErrUnavailable)
			must(t, strings.Contains(err.Error(), "all connections are in use"), "%v", err)
		}
	})
}
