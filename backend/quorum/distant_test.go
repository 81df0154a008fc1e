package quorum_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
	"github.com/dlock-go/dlock/backend/quorum"
)

// A distant is a node at some distance: what goes there and what comes from there each
// takes half of a round trip.
type distant struct {
	*memory.Backend
	trip   atomic.Int64 // ns
	jitter atomic.Int64 // ns: by how much each way may take longer
	dials  atomic.Int64 // round trips that a ping takes to make its connection
	steps  atomic.Int64 // requests that are made and answered before the one for the lock
	asked  atomic.Int64 // how often it was asked for a lock
}

// travel lets half of a round trip pass.
func (d *distant) travel() {
	way := time.Duration(d.trip.Load()) / 2
	if most := d.jitter.Load(); most > 0 {
		way += time.Duration(rand.Int64N(most))
	}
	time.Sleep(way)
}

// carry returns a context that ends when the node hears of the end of ctx.
func (d *distant) carry(ctx context.Context) (there context.Context, end func()) {
	there, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { d.travel(); cancel() })
	return there, func() { stop(); cancel() }
}

// A farObserver hears late that its request waits.
type farObserver struct {
	backend.Observer
	node *distant
}

func (o farObserver) Queued() { o.node.travel(); o.Observer.Queued() }

func (d *distant) Acquire(ctx context.Context, r backend.Request) (*backend.Hold, error) {
	return d.ask(ctx, r, d.Backend.Acquire)
}

func (d *distant) Vote(ctx context.Context, r backend.Request, b backend.Ballot) (*backend.Hold, error) {
	return d.ask(ctx, r, func(ctx context.Context, r backend.Request) (*backend.Hold, error) {
		return d.Backend.Vote(ctx, r, b)
	})
}

// ask asks the node for a lock at its distance.
func (d *distant) ask(ctx context.Context, r backend.Request, acquire func(context.Context, backend.Request) (*backend.Hold, error)) (*backend.Hold, error) {
	sent := time.Now()
	there, end := d.carry(ctx)
	defer end()
	r.Observer = farObserver{r.Observer, d}
	d.asked.Add(1)
	for range d.steps.Load() {
		d.travel()
		d.travel()
		backend.Progress(ctx)
	}
	d.travel()
	h, err := acquire(there, r)
	d.travel()
	if h != nil && !r.Wait {
		h.Sent = sent
	}
	return h, err
}

func (d *distant) RaiseToken(ctx context.Context, h *backend.Hold, token uint64) error {
	d.travel()
	defer d.travel()
	return d.Backend.RaiseToken(ctx, h, token)
}

func (d *distant) LowerToken(ctx context.Context, h *backend.Hold, token uint64) error {
	d.travel()
	defer d.travel()
	return d.Backend.LowerToken(ctx, h, token)
}

func (d *distant) Release(ctx context.Context, h *backend.Hold) error {
	d.travel()
	defer d.travel()
	return d.Backend.Release(ctx, h)
}

func (d *distant) Ping(ctx context.Context) (string, error) {
	for range 2*d.dials.Load() + 1 {
		d.travel()
	}
	defer d.travel()
	if ctx.Err() != nil {
		return "", backend.ErrUnavailable
	}
	return d.Backend.Ping(ctx)
}

// far opens a client to nodes at some distance.
func (s nodes) far(t *testing.T, trips ...time.Duration) (*dlock.Client, []*distant) {
	t.Helper()
	return s.farFor(t, nil, trips...)
}

func (s nodes) farFor(t *testing.T, o *quorum.Options, trips ...time.Duration) (*dlock.Client, []*distant) {
	t.Helper()
	var far []*distant
	var all []backend.Backend
	for i, trip := range trips {
		d := &distant{Backend: memory.New(s[i])}
		d.trip.Store(int64(trip))
		far, all = append(far, d), append(all, d)
	}
	return over(t, all, o), far
}

// unsteady is far with three nodes, to which each way takes up to a tenth of the round
// trip more. The client has learned how long that is.
func (s nodes) unsteady(t *testing.T, trips [3]time.Duration) *dlock.Client {
	t.Helper()
	c, far := s.far(t, trips[:]...)
	for i, d := range far {
		d.jitter.Store(int64(trips[i] / 10))
	}
	for range 10 {
		ok(t, dlock.Do(t.Context(), c.Mutex("warm"), nothing))
	}
	return c
}

// A free lock takes one round trip at any distance: that to the second of three nodes.
func TestFreeLockAtADistance(t *testing.T) {
	const cycles = 40
	for _, trips := range [][3]time.Duration{
		{1, 1, 1}, {30, 30, 30}, {60, 60, 60}, {100, 100, 100}, {150, 150, 150}, {300, 300, 300},
		{1, 30, 100}, {1, 100, 100}, {30, 60, 100}, {100, 150, 300},
	} {
		ripe(t, 3, func(t *testing.T, s nodes) {
			for i := range trips {
				trips[i] *= time.Millisecond
			}
			c := s.unsteady(t, trips)
			var took time.Duration
			for range cycles {
				began := time.Now()
				l, err := c.Mutex("x").Lock(t.Context())
				ok(t, err)
				took += time.Since(began)
				ok(t, l.Unlock(t.Context()))
				time.Sleep(time.Second)
			}
			if n := float64(took) / cycles / float64(trips[1]); n > 1.4 {
				t.Errorf("nodes at %v: a free lock takes %.1f round trips", trips, n)
			}
		})
	}
}

// A hand-over takes two round trips at any distance: from the one who has the lock to the
// front and on to the next, and from there to the others. That is so too if one of the
// others is all that is left.
func TestHandoversAtADistance(t *testing.T) {
	for _, trip := range []time.Duration{1, 10, 30, 60, 100, 150, 300} {
		trip *= time.Millisecond
		for _, dead := range []bool{false, true} {
			ripe(t, 3, func(t *testing.T, s nodes) {
				const n = 4
				var clients []*dlock.Client
				for range n {
					clients = append(clients, s.unsteady(t, [3]time.Duration{trip, trip, trip}))
				}
				if dead {
					s[s.front("x")].Freeze()
				}
				began := time.Now()
				visits, longest := contend(t, clients, 200*trip+2*time.Second)
				s.thaw()
				if n := float64(time.Since(began)) / float64(visits) / float64(trip); n > 2.8 {
					t.Errorf("round trip %v, one dead: %v: a hand-over takes %.1f round trips", trip, dead, n)
				}
				if most := 3*n*trip*2 + 250*time.Millisecond; longest > most {
					t.Errorf("round trip %v, one dead: %v: somebody waited for %v", trip, dead, longest)
				}
			})
		}
	}
}

// A front that is further away than the others costs less than half of the hand-overs,
// however much further that is: from some distance on another node is the front.
func TestSlowFrontAtADistance(t *testing.T) {
	const trip = 30 * time.Millisecond
	measure := func(more time.Duration) (visits int) {
		ripe(t, 3, func(t *testing.T, s nodes) {
			var clients []*dlock.Client
			for range 8 {
				trips := [3]time.Duration{trip, trip, trip}
				trips[s.front("x")] += more
				clients = append(clients, s.unsteady(t, trips))
			}
			visits, _ = contend(t, clients, 20*time.Second)
		})
		return visits
	}
	near := measure(0)
	for more := trip / 2; more <= 5*trip; more += trip / 2 {
		if n := measure(more); n < near*3/5 {
			t.Errorf("a front that is %v further away: %d hand-overs, in place of %d", more, n, near)
		}
	}
}

// contend has clients take one lock in turn for d. It returns how often they had it, and
// the longest wait.
func contend(t *testing.T, clients []*dlock.Client, d time.Duration) (visits int, longest time.Duration) {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	r := &checker{t: t}
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, c := range clients {
		all.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				l, err := c.Mutex("x").Lock(ctx)
				mu.Lock()
				longest = max(longest, time.Since(began))
				mu.Unlock()
				if err != nil {
					must(t, ctx.Err() != nil, "lock: %v", err)
					return
				}
				r.enter(l)
				r.leave(l)
				ok(t, l.Unlock(context.Background()))
			}
		})
	}
	all.Wait()
	return r.visits, longest
}

// Nodes that do not vote yet have answered: who waits for them waits on when an answer
// takes longer than the rest of the time for a first one.
func TestNewNodesAtADistance(t *testing.T) {
	for _, trip := range []time.Duration{10, 60, 150, 300} {
		trip *= time.Millisecond
		in(t, 3, func(t *testing.T, s nodes) {
			c, _ := s.far(t, trip, trip, trip)
			ctx, cancel := context.WithTimeout(t.Context(), 2*delay)
			defer cancel()
			ok(t, dlock.Do(ctx, c.Mutex("x"), nothing))
		})
	}
}

// A ping may have to make a connection, which takes several round trips. Who waits does not
// leave the front for that.
func TestPingConnectsAtADistance(t *testing.T) {
	for _, trip := range []time.Duration{30, 100, 200} {
		trip *= time.Millisecond
		ripe(t, 3, func(t *testing.T, s nodes) {
			a := s.open(t, nil)
			c, far := s.far(t, trip, trip, trip)
			for range 20 {
				ok(t, dlock.Do(t.Context(), c.Mutex("warm"), nothing))
			}
			front := s.front("x")
			far[front].dials.Store(4)
			l := a.lock("x")
			waits := make(chan error)
			go func() { waits <- dlock.Do(t.Context(), c.Mutex("x"), nothing) }()
			for range 30 {
				time.Sleep(100 * time.Millisecond)
				for i := range s {
					if n := s[i].Waiting("x"); n != 0 && i != front {
						t.Errorf("round trip %v: %d wait at node %d, and the front is node %d", trip, n, i, front)
					}
				}
			}
			a.unlock(l)
			ok(t, <-waits)
			s.empty(t)
		})
	}
}

// All answers are late together, and come in any order: this process had no time to look.
// That is no reason to take the front for silent, and to wait, or to be let in, elsewhere.
func TestAnswersThatAreLateTogether(t *testing.T) {
	const trip, late = time.Millisecond, 300 * time.Millisecond
	ripe(t, 3, func(t *testing.T, s nodes) {
		front := s.front("x")
		lateFor := func(far []*distant) {
			for i, d := range far {
				d.trip.Store(int64(late))
				if i == front {
					d.trip.Store(int64(late + late/10))
				}
			}
			time.AfterFunc(late+late/9, func() {
				for _, d := range far {
					d.trip.Store(int64(trip))
				}
			})
		}
		var clients []*dlock.Client
		var links [][]*distant
		for range 2 {
			c, far := s.far(t, trip, trip, trip)
			for range 20 {
				ok(t, dlock.Do(t.Context(), c.Mutex("warm"), nothing))
			}
			clients, links = append(clients, c), append(links, far)
		}
		a := s.open(t, nil)
		reader, err := a.RWMutex("x").RLock(t.Context())
		ok(t, err)
		lateFor(links[0])
		waits := make(chan error, 1)
		go func() {
			l, err := clients[0].RWMutex("x").Lock(t.Context())
			if err == nil {
				err = l.Unlock(t.Context())
			}
			waits <- err
		}()
		time.Sleep(time.Second)
		for i := range s {
			if n := s[i].Waiting("x"); (n == 1) != (i == front) {
				t.Errorf("%d wait at node %d, and the front is node %d", n, i, front)
			}
		}
		lateFor(links[1])
		_, err = clients[1].RWMutex("x").TryRLock(t.Context())
		is(t, err, dlock.ErrHeld)
		a.unlock(reader)
		ok(t, <-waits)
		s.empty(t)
	})
}

// A process, or all nodes, may have no time for seconds. There is as much for a first answer
// as there is at one server, for who waits and for who tries.
func TestFirstAnswersThatTakeSeconds(t *testing.T) {
	const trip = backend.FirstAnswer * 5 / 6
	for _, wait := range []bool{false, true} {
		ripe(t, 3, func(t *testing.T, s nodes) {
			c, _ := s.far(t, trip, trip, trip)
			lock := c.Mutex("x").TryLock
			if wait {
				lock = c.Mutex("x").Lock
			}
			l, err := lock(t.Context())
			if err != nil {
				t.Fatalf("waits %v: %v", wait, err)
			}
			ok(t, l.Unlock(t.Context()))
			time.Sleep(trip)
			s.empty(t)
		})
	}
}

// A node that is deaf to tokens grants, and takes none that others have given.
type deafToTokens struct{ *distant }

func (n deafToTokens) RaiseToken(ctx context.Context, _ *backend.Hold, _ uint64) error {
	<-ctx.Done()
	return backend.Fail(backend.ErrUnavailable, ctx.Err())
}

// A try ends in the time of a first answer, also if a grant came late and the node that must
// then be told its token says nothing.
func TestTryOfWhichTheTokenIsNotTaken(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		s[0].SetClock(time.Minute)
		s[2].Freeze()
		defer s.thaw()
		_, far := s.far(t, backend.FirstAnswer*5/6, time.Millisecond, time.Millisecond)
		c := over(t, []backend.Backend{far[0], deafToTokens{far[1]}, far[2]}, nil)
		began := time.Now()
		_, err := c.Mutex("x").TryLock(t.Context())
		is(t, err, dlock.ErrUnavailable)
		if took := time.Since(began); took > backend.FirstAnswer+300*time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}

// A subscribing node is one whose client has to subscribe there before a request can wait.
type subscribing struct {
	*memory.Backend
	takes *atomic.Int64 // ns
}

func (n subscribing) Vote(ctx context.Context, r backend.Request, b backend.Ballot) (*backend.Hold, error) {
	if d := time.Duration(n.takes.Load()); r.Wait && d > 0 {
		r.Answered()
		time.Sleep(d)
	}
	return n.Backend.Vote(ctx, r, b)
}

// The front has answered, and its client takes long to subscribe there. Who waits stays, and
// the front is no slower than others for that.
func TestSubscriptionTakesLong(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		var takes atomic.Int64
		var all []backend.Backend
		for i := range s {
			all = append(all, subscribing{memory.New(s[i]), &takes})
		}
		a, c := s.open(t, nil), over(t, all, nil)
		for range 20 {
			ok(t, dlock.Do(t.Context(), c.Mutex("warm"), nothing))
		}
		front := s.front("x")
		for _, long := range []time.Duration{500 * time.Millisecond, 40 * time.Millisecond, 40 * time.Millisecond} {
			takes.Store(int64(long))
			l := a.lock("x")
			waits := make(chan error, 1)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			go func() { waits <- dlock.Do(ctx, c.Mutex("x"), nothing) }()
			time.Sleep(long + 5*time.Millisecond)
			for i := range s {
				if n := s[i].Waiting("x"); (n == 1) != (i == front) {
					t.Errorf("%d wait at node %d, and the front is node %d", n, i, front)
				}
			}
			takes.Store(0)
			a.unlock(l)
			ok(t, <-waits)
		}
		s.empty(t)
	})
}

// Nodes that answer take as many requests as there are callers.
func TestManyTryAtOnce(t *testing.T) {
	const trip, callers = 20 * time.Millisecond, 1000
	ripe(t, 3, func(t *testing.T, s nodes) {
		c, _ := s.far(t, trip, trip, trip)
		ok(t, dlock.Do(t.Context(), c.Mutex("warm"), nothing))
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				l, err := c.Mutex(fmt.Sprint("x", i)).TryLock(t.Context())
				if err != nil {
					t.Errorf("lock %d: %v", i, err)
					return
				}
				ok(t, l.Unlock(t.Context()))
			})
		}
		all.Wait()
		s.empty(t)
	})
}

// The clocks of all nodes are ahead of that of a client, which has a lock only after others. It learns of
// that: a hand-over takes the message, and one round trip.
func TestWaiterWithASlowClock(t *testing.T) {
	const trip = 10 * time.Millisecond
	ripe(t, 3, func(t *testing.T, s nodes) {
		for i := range s {
			s[i].SetClock(time.Hour + time.Duration(i)*time.Millisecond)
		}
		holder := s.open(t, nil)
		waiter, _ := s.far(t, trip, trip, trip)
		late := 0
		for range 10 {
			l := holder.lock("x")
			got := make(chan *dlock.Lease)
			go func() {
				l, err := waiter.Mutex("x").Lock(t.Context())
				ok(t, err)
				got <- l
			}()
			time.Sleep(time.Second)
			free := time.Now()
			holder.unlock(l)
			l = <-got
			if time.Since(free) > 2*trip {
				late++
			}
			ok(t, l.Unlock(t.Context()))
			time.Sleep(time.Second)
		}
		if late > 2 {
			t.Errorf("%d of 10 locks took another round trip", late)
		}
	})
}

// A lock has to be asked for in several steps, each of which a node answers as soon as it uses to. None is taken for
// silent because they take longer together, and each is asked once.
func TestAnswersInSteps(t *testing.T) {
	const trip = 100 * time.Millisecond
	for _, need := range []int{2, 3} {
		ripe(t, 3, func(t *testing.T, s nodes) {
			c, far := s.farFor(t, &quorum.Options{MaxTTL: ttl, Skew: skew, Need: need}, trip, trip, trip)
			for range 100 {
				ok(t, dlock.Do(t.Context(), c.Mutex("x"), nothing))
			}
			for _, d := range far {
				d.asked.Store(0)
				d.steps.Store(2)
			}
			lease, err := c.Mutex("x").Lock(t.Context())
			ok(t, err)
			defer func() { ok(t, lease.Unlock(context.Background())) }()
			for i, d := range far {
				must(t, d.asked.Load() == 1, "need %d: node %d was asked %d times", need, i, d.asked.Load())
			}
		})
	}
}
