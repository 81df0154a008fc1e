package quorum_test

import (
	"context"
	"errors"
	"hash/fnv"
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

// front is the place of the node at which clients queue for a name.
func (s nodes) front(name string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	return int(h.Sum32() % uint32(len(s)))
}

// Several wait at the front, which stops answering. They queue at another node.
func TestFrontHangs(t *testing.T) {
	for _, n := range []int{3, 5} {
		ripe(t, n, func(t *testing.T, s nodes) {
			a := s.open(t, nil)
			l := a.lock("x")
			const waiting = 4
			granted := make(chan *dlock.Lease, waiting)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for range waiting {
				c := s.open(t, nil)
				go func() {
					l, err := c.Mutex("x").Lock(ctx)
					if err != nil {
						t.Errorf("lock: %v", err)
					}
					granted <- l
				}()
			}
			synctest.Wait()
			must(t, s[s.front("x")].Waiting("x") == waiting, "%d wait at the front", s[s.front("x")].Waiting("x"))
			s[s.front("x")].Freeze()
			a.unlock(l)
			start := time.Now()
			for range waiting {
				if next := <-granted; next != nil {
					ok(t, next.Unlock(t.Context()))
				}
			}
			must(t, time.Since(start) < 500*time.Millisecond, "it took %v", time.Since(start))
			s.thaw()
			s.empty(t)
		})
	}
}

// The front has lost what it granted, and grants again: the lock is held all the same, as
// the others say. Who asks behind a call that waits is told so.
func TestFrontHasForgottenTheHolder(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		a, b := s.open(t, nil), s.open(t, nil)
		l := a.lock("x")
		synctest.Wait() // all nodes have granted
		s[s.front("x")].Evict("x")
		waits := make(chan *dlock.Lease)
		go func() {
			l, err := b.Mutex("x").Lock(t.Context())
			ok(t, err)
			waits <- l
		}()
		synctest.Wait()
		start := time.Now()
		_, err := b.Mutex("x").TryLock(t.Context())
		is(t, err, dlock.ErrHeld)
		must(t, time.Since(start) < time.Second, "took %v", time.Since(start))
		a.unlock(l)
		b.unlock(<-waits)
	})
}

// Who has waited for a moment when the front stops answering is let in by the others
// once it has had time for two pings.
func TestFrontFlaps(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		a, b := s.open(t, nil), s.open(t, nil)
		for range 50 {
			a.unlock(a.lock("warm"))
			b.unlock(b.lock("warm"))
		}
		front := s[s.front("x")]
		for range 20 {
			l := a.lock("x")
			granted := make(chan *dlock.Lease, 1)
			go func() { granted <- b.lock("x") }()
			synctest.Wait()
			front.Freeze()
			start := time.Now()
			a.unlock(l)
			b.unlock(<-granted)
			must(t, time.Since(start) < 350*time.Millisecond, "it took %v", time.Since(start))
			front.Thaw()
			time.Sleep(300 * time.Millisecond)
		}
	})
}

// Who has the front does not get the rest. Nobody else may overtake it.
func TestTryDoesNotOvertake(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		a := s.open(t, nil)
		trips := make([]time.Duration, len(s))
		trips[s.front("x")] = time.Millisecond // the front is heard last
		b, _ := s.far(t, trips...)
		for i, link := range a.links {
			if i != s.front("x") {
				link.Cut()
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, err := a.Mutex("x").Lock(ctx)
			must(t, err != nil, "a minority is enough")
		}()
		synctest.Wait()
		_, err := b.Mutex("x").TryLock(t.Context())
		is(t, err, dlock.ErrHeld)
		cancel()
		<-done
		a.heal()
		ok(t, dlock.Do(t.Context(), b.Mutex("x"), nothing))
	})
}

// A release comes late to the front. Who tries after that Unlock is not refused by the front
// alone, and asks no more often than it has to where somebody has the lock.
func TestTryAfterUnlock(t *testing.T) {
	for _, late := range []time.Duration{time.Millisecond, 30 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond} {
		ripe(t, 3, func(t *testing.T, s nodes) {
			a, far := s.far(t, 0, 0, 0)
			b := s.open(t, nil)
			for range 10 {
				ok(t, dlock.Do(t.Context(), a.Mutex("x"), nothing))
			}
			l, err := a.Mutex("x").Lock(t.Context())
			ok(t, err)
			_, err = b.try("x")
			is(t, err, dlock.ErrHeld)
			far[s.front("x")].trip.Store(int64(2 * late))
			ok(t, l.Unlock(t.Context()))
			l, err = b.try("x")
			ok(t, err)
			b.unlock(l)
			s.empty(t)
		})
	}
}

// Clients that must not wait come at once while one node does not answer: one of them
// wins, and none is held up for longer than it takes to see that.
func TestSplitTriesOneHangs(t *testing.T) {
	for away := range 3 {
		ripe(t, 3, func(t *testing.T, s nodes) {
			var clients []*client
			for range 5 {
				c := s.open(t, nil)
				for range 9 {
					c.unlock(c.lock("warm"))
				}
				clients = append(clients, c)
			}
			synctest.Wait() // they know how fast the nodes are
			s[away].Freeze()
			for range 20 {
				var all sync.WaitGroup
				var mu sync.Mutex
				var leases []*dlock.Lease
				start := time.Now()
				for _, c := range clients {
					all.Go(func() {
						l, err := c.try("x")
						if err != nil {
							is(t, err, dlock.ErrHeld)
							return
						}
						mu.Lock()
						defer mu.Unlock()
						leases = append(leases, l)
					})
				}
				all.Wait()
				must(t, len(leases) == 1, "%d of 5 won", len(leases))
				must(t, time.Since(start) < 100*time.Millisecond, "it took %v", time.Since(start))
				ok(t, leases[0].Unlock(t.Context()))
			}
			s.thaw()
			s.empty(t)
		})
	}
}

// Two clients queue at different nodes, because one is far from the first of them, and each has
// what the other needs. They do not wait for the third, which hangs, before one gives way.
func TestSplitFrontsOneHangs(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		first, second, third := s.front("x"), (s.front("x")+1)%3, (s.front("x")+2)%3
		near, far := make([]time.Duration, 3), make([]time.Duration, 3)
		near[second] = time.Millisecond // it comes there after the other
		far[first] = 20 * time.Millisecond
		var clients []*dlock.Client
		for _, trips := range [][]time.Duration{near, far} {
			c, _ := s.far(t, trips...)
			for range 10 {
				ok(t, dlock.Do(t.Context(), c.Mutex("warm"), nothing))
			}
			clients = append(clients, c)
		}
		time.Sleep(time.Second) // until every node has had the releases
		s[third].Freeze()
		start := time.Now()
		var all sync.WaitGroup
		for _, c := range clients {
			all.Go(func() { ok(t, dlock.Do(t.Context(), c.Mutex("x"), nothing)) })
		}
		all.Wait()
		took := time.Since(start)
		must(t, took < 500*time.Millisecond, "both had it after %v", took)
		s.thaw()
		s.empty(t)
	})
}

// When a call has given up nothing of it is left to refuse the next.
func TestCancelledWaiterIsGone(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		a, b, c := s.open(t, nil), s.open(t, nil), s.open(t, nil)
		for range 40 {
			l := a.lock("x")
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := b.Mutex("x").Lock(ctx)
			is(t, err, dlock.ErrHeld)
			cancel()
			a.unlock(l)
			next, err := c.try("x")
			ok(t, err)
			c.unlock(next)
		}
	})
}

// Nobody needs to observe a request.
func TestNoObserver(t *testing.T) {
	in(t, 3, func(t *testing.T, s nodes) {
		var all []backend.Backend
		for i := range s {
			all = append(all, memory.New(s[i]))
		}
		b, err := quorum.New(all, &quorum.Options{Need: 3})
		ok(t, err)
		r := backend.Request{Name: "x", ID: backend.ID{Client: "a", Seq: 1}, Mode: backend.Exclusive, TTL: time.Second}
		h, err := b.Acquire(t.Context(), r)
		ok(t, err)
		waits, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		r.ID.Seq, r.Wait = 2, true
		_, err = b.Acquire(waits, r)
		must(t, errors.Is(err, backend.ErrHeld), "error is %v", err)
		s[0].Evict("x")
		_ = b.Release(t.Context(), h)
		ok(t, b.Close(t.Context()))
	})
}

// A caller that must not wait comes behind one that does, while one node of three answers:
// that is no answer of the quorum, and ends no limit.
func TestTryBehindALockThatAMinorityAnswers(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		c := s.open(t, nil)
		c.unlock(c.lock("x"))
		time.Sleep(time.Second) // until every node has had the release
		s.freeze(2)
		var first sync.WaitGroup
		first.Go(func() {
			_, err := c.Mutex("x").Lock(t.Context())
			is(t, err, dlock.ErrUnavailable)
		})
		time.Sleep(50 * time.Millisecond)
		start := time.Now()
		_, err := c.try("x")
		is(t, err, dlock.ErrUnavailable)
		took := time.Since(start)
		must(t, took < backend.FirstAnswer+200*time.Millisecond, "it took %v", took)
		s.thaw()
		first.Wait()
	})
}

// A pingedNode answers pings, which it counts, at once, and requests that wait late.
type pingedNode struct {
	*memory.Backend
	takes atomic.Int64 // ns
	pings atomic.Int64
}

func (n *pingedNode) Vote(ctx context.Context, r backend.Request, b backend.Ballot) (*backend.Hold, error) {
	if r.Wait {
		time.Sleep(time.Duration(n.takes.Load()))
	}
	return n.Backend.Vote(ctx, r, b)
}

func (n *pingedNode) Ping(ctx context.Context) (string, error) {
	if n.pings.Add(1)%1000 == 0 {
		time.Sleep(time.Second) // without it time would stand still
	}
	return n.Backend.Ping(ctx)
}

// The front answers pings, and not the request, and no other node is any better. It is not
// pinged without a pause.
func TestFrontIsPingedWithPauses(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		front := s.front("x")
		node := &pingedNode{Backend: memory.New(s[front])}
		all := make([]backend.Backend, len(s))
		for i := range s {
			all[i] = memory.New(s[i])
		}
		all[front] = node
		a, c := s.open(t, nil), over(t, all, nil)
		l := a.lock("x")
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := c.Mutex("x").Lock(ctx) // from now on it asks the front first
		is(t, err, dlock.ErrHeld)
		a.unlock(l)
		for i := range s {
			if i != front {
				s[i].Freeze()
			}
		}
		_, err = c.Mutex("y").TryLock(t.Context()) // the others are known to be silent
		is(t, err, dlock.ErrUnavailable)
		const takes = 500 * time.Millisecond
		node.takes.Store(int64(takes))
		node.pings.Store(0)
		waits, cancel := context.WithTimeout(t.Context(), takes)
		defer cancel()
		_, err = c.Mutex("x").Lock(waits)
		must(t, err != nil, "a minority has granted")
		if n, most := node.pings.Load(), int64(takes/(10*time.Millisecond)); n > most {
			t.Errorf("%d pings in %v", n, takes)
		}
		s.thaw()
		time.Sleep(time.Second)
		s.empty(t)
	})
}

// A client has no time to look for a moment, so that one ping is late, or for longer, so that all
// pings are: no node answers while another does not. It stays in the queue.
func TestOnePingIsLate(t *testing.T) { testLatePings(t, 60*time.Millisecond) }

func TestAllPingsAreLate(t *testing.T) {
	for lasts := 100 * time.Millisecond; lasts < time.Second; lasts += 50 * time.Millisecond {
		testLatePings(t, lasts)
	}
}

func testLatePings(t *testing.T, lasts time.Duration) {
	t.Helper()
	const trip, late = time.Millisecond, 300 * time.Millisecond
	ripe(t, 3, func(t *testing.T, s nodes) {
		a := s.open(t, nil)
		c, far := s.far(t, trip, trip, trip)
		for range 20 {
			ok(t, dlock.Do(t.Context(), c.Mutex("warm"), nothing))
		}
		l := a.lock("x")
		waits := make(chan error, 1)
		go func() { waits <- dlock.Do(t.Context(), c.Mutex("x"), nothing) }()
		time.Sleep(200 * time.Millisecond)
		for _, d := range far {
			d.trip.Store(int64(late))
		}
		time.Sleep(lasts)
		for _, d := range far {
			d.trip.Store(int64(trip))
		}
		for range 100 {
			time.Sleep(10 * time.Millisecond)
			for i := range s {
				if n := s[i].Waiting("x"); (n == 1) != (i == s.front("x")) {
					t.Fatalf("pings late for %v: %d wait at node %d, and the front is node %d", lasts, n, i, s.front("x"))
				}
			}
		}
		a.unlock(l)
		ok(t, <-waits)
		s.empty(t)
	})
}

// contest has b learn that several clients want a name: it asks the front alone first.
func (s nodes) contest(t *testing.T, b backend.Backend, r backend.Request) {
	t.Helper()
	a := s.open(t, nil)
	l := a.lock(r.Name)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := b.Acquire(ctx, r)
	is(t, err, backend.ErrHeld)
	a.unlock(l)
}

// The fronts that one asks one after the other hang: the error says so of each. They do not vote
// yet: who asks waits until they do, as for any other name.
func TestFrontsOfNoUse(t *testing.T) {
	for _, hang := range []bool{true, false} {
		ripe(t, 3, func(t *testing.T, s nodes) {
			b, _ := s.busy(t, 0)
			r := backend.Request{Name: "x", ID: backend.ID{Client: "b", Seq: 1}, Mode: backend.Exclusive, TTL: ttl, Wait: true}
			s.contest(t, b, r)
			for i := range s {
				if hang {
					s[i].Freeze()
				} else {
					s[i].Wipe()
				}
			}
			start := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 2*delay)
			defer cancel()
			r.ID.Seq++
			h, err := b.Acquire(ctx, r)
			if hang {
				is(t, err, backend.ErrUnavailable)
				took := time.Since(start)
				must(t, took < backend.FirstAnswer, "it took %v", took)
				for _, want := range []string{"node 1: ", "node 2: ", "node 3: "} {
					must(t, strings.Contains(err.Error(), want) && !strings.Contains(err.Error(), "%!"), "the error is %v", err)
				}
				s.thaw()
			} else {
				ok(t, err)
				waited := time.Since(start)
				must(t, waited > ttl && waited < delay, "waited %v", waited)
				ok(t, b.Release(t.Context(), h))
			}
			ok(t, b.Close(t.Context()))
			s.empty(t)
		})
	}
}

// This process has no time to look for a moment, in which who wants a contended lock asks its
// front alone, or who waits there pings it in vain. Neither goes to another node.
func TestFrontIsLateWithTheOthers(t *testing.T) {
	const trip, late = time.Millisecond, 700 * time.Millisecond
	for _, waits := range []bool{false, true} {
		ripe(t, 3, func(t *testing.T, s nodes) {
			a := s.open(t, nil)
			c, far := s.far(t, trip, trip, trip)
			for range 20 {
				ok(t, dlock.Do(t.Context(), c.Mutex("warm"), nothing))
			}
			l := a.lock("x")
			lock := func(d time.Duration) {
				ctx, cancel := context.WithTimeout(t.Context(), d)
				defer cancel()
				_, err := c.Mutex("x").Lock(ctx)
				is(t, err, dlock.ErrHeld)
			}
			lock(300 * time.Millisecond) // it asks the front first from now on
			done := make(chan struct{})
			begin := func() {
				go func() { defer close(done); lock(5 * time.Second) }()
			}
			if waits {
				begin()
				time.Sleep(200 * time.Millisecond)
			}
			for i, d := range far {
				d.trip.Store(int64(late))
				if i == s.front("x") {
					d.trip.Store(int64(late + late/20))
				}
			}
			if !waits {
				begin()
			}
			time.Sleep(late)
			for _, d := range far {
				d.trip.Store(int64(trip))
			}
			for range 30 {
				time.Sleep(100 * time.Millisecond)
				for i := range s {
					if n := s[i].Waiting("x"); n != 0 && i != s.front("x") {
						t.Fatalf("waited before: %v: %d wait at node %d, and the front is node %d", waits, n, i, s.front("x"))
					}
				}
			}
			must(t, s[s.front("x")].Waiting("x") == 1, "it does not wait at the front")
			<-done
			a.unlock(l)
			time.Sleep(time.Second)
			s.empty(t)
		})
	}
}

// A voter answers requests for votes by itself.
type voter struct {
	*memory.Backend
	vote func(ctx context.Context, r backend.Request) error
}

func (n voter) Vote(ctx context.Context, r backend.Request, _ backend.Ballot) (*backend.Hold, error) {
	return nil, n.vote(ctx, r)
}

// A try has the vote of the front. One node does not vote, and the other refuses just before the time of
// a first answer is over, and would have the request wait: it answers late again. That takes no more
// time than if it had not answered at all.
func TestTryBesideALateRefusal(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		const late = 2900 * time.Millisecond
		front := s.front("x")
		all := make([]backend.Backend, len(s))
		for k, n := range []func(context.Context, backend.Request) error{
			nil,
			func(context.Context, backend.Request) error { return &backend.NotReadyError{In: time.Hour} },
			func(ctx context.Context, r backend.Request) error {
				if !r.Wait {
					backend.Sleep(ctx, late)
					return backend.ErrHeld
				}
				r.Observer.(interface{ Answered() }).Answered()
				backend.Sleep(ctx, late)
				return backend.ErrHeld
			},
		} {
			i := (front + k) % len(s)
			all[i] = memory.New(s[i])
			if n != nil {
				all[i] = voter{memory.New(s[i]), n}
			}
		}
		began := time.Now()
		_, err := over(t, all, nil).Mutex("x").TryLock(t.Context())
		is(t, err, dlock.ErrHeld)
		if took := time.Since(began); took > backend.FirstAnswer+300*time.Millisecond {
			t.Errorf("the try took %v", took)
		}
	})
}
