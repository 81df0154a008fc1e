package redis

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/faultnet"
	"github.com/dlock-go/dlock/internal/server"
)

// TestHintsAreHeeded has one be told to ask, and again before it may, for the last time.
func TestHintsAreHeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newListener(nil, nil, slog.New(slog.DiscardHandler), false)
		w := newWaiter(lockKey("name"), "w10000:client:1.mac", "channel")
		l.addWaiter(w)
		began := time.Now()
		for i := range 3 {
			for range 10 {
				l.dispatch("poll " + hintOf(w.id))
			}
			<-w.wakeUps
			if after := time.Since(began); after != time.Duration(i)*hintInterval {
				t.Errorf("it asks for the %d. time after %v", i+1, after)
			}
		}
		time.Sleep(time.Minute)
		if len(w.wakeUps) > 0 {
			t.Error("it asks once more, and was not told to")
		}
	})
}

// TestFairWithoutMessages has one client pass a lock among its goroutines while another
// waits that no message can announce: polling, and on a cluster a holder that has never
// waited for the lock. What counts is how often the lock goes past who waits.
func TestFairWithoutMessages(t *testing.T) {
	t.Run("polling", func(t *testing.T) {
		t.Parallel()
		url := "redis://" + shared.Addr() + "?dlock.wake=poll"
		admin := plainClient(t, shared)
		testFair(t, url, func() bool { return waiting(t, admin) > 0 })
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		c, admin := sharedCluster.use(t)
		testFair(t, clusterURL(c), func() bool {
			return admin.ZCard(context.Background(), mainKey(t.Name())+":q").Val() > 0
		})
	})
}

func testFair(t *testing.T, url string, queued func() bool) {
	const passes = 100 // much less than a third of the lease allows
	ctx := within(t)
	o := &dlock.Options{TTL: limit}
	busy, other := openURL(t, url, o), openURL(t, url, o)
	working, stop := context.WithCancel(ctx)
	var turns atomic.Int64
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for working.Err() == nil {
				l, err := busy.Mutex(t.Name()).Lock(working)
				if err != nil {
					continue
				}
				turns.Add(1)
				time.Sleep(time.Millisecond)
				_ = l.Unlock(context.Background())
			}
		})
	}
	defer all.Wait()
	defer stop()
	eventually(t, "it is passed on", func() bool { return turns.Load() > 20 })
	got := make(chan *dlock.Lease, 1)
	go func() { got <- must[*dlock.Lease](t)(other.Mutex(t.Name()).Lock(ctx)) }()
	eventually(t, "the other one waits", func() bool { return queued() || len(got) > 0 })
	before := turns.Load()
	l := <-got
	if n := turns.Load() - before; n > passes {
		t.Errorf("the lock went past the other client %d times", n)
	}
	must[any](t)(nil, l.Unlock(ctx))
}

// TestPollingScales adds up how often the waiters of one lock ask that nobody can tell.
func TestPollingScales(t *testing.T) {
	const waiters = 200
	b := &Backend{poll: DefaultPoll}
	perSecond := 0.0
	for position := range waiters {
		c := &acquisition{Request: backend.Request{TTL: limit}, b: b, polls: true}
		pause := c.pollInterval(answer{values: []any{"QUEUED", int64(0), int64(0), int64(position), int64(0)}})
		if pause > unconfirmed/2 {
			t.Errorf("position %d asks every %v: a grant could run out", position, pause)
		}
		perSecond += 1 / pause.Seconds()
	}
	if perSecond > 300 {
		t.Errorf("%d waiters ask %.0f times a second", waiters, perSecond)
	}
}

// TestKnownLimitForgottenHold shows what a client believes that has not noticed
// yet that the server has lost its data: it passes a hold on between its own
// goroutines that somebody else has had since. The next renewal says so, and
// the token is smaller than that of the other, so that a store refuses it.
func TestKnownLimitForgottenHold(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	s := server.Start(t, server.Redis{})
	c := openClient(t, s, &dlock.Options{TTL: 30 * time.Second})
	must[any](t)(nil, must[*dlock.Lease](t)(c.Mutex("job").Lock(ctx)).Unlock(ctx))
	subscribed(t, s, 1) // a client that cannot be told passes nothing on for long
	first := must[*dlock.Lease](t)(c.Mutex("job").Lock(ctx))
	passed := make(chan *dlock.Lease, 1)
	go func() {
		l, err := c.Mutex("job").Lock(ctx)
		if err != nil {
			t.Error(err)
		}
		passed <- l
	}()
	<-first.Wanted()

	must[string](t)(plainClient(t, s).FlushAll(ctx).Result())
	other := must[*dlock.Lease](t)(openClient(t, s, nil).Mutex("job").Lock(ctx))
	must[any](t)(nil, first.Unlock(ctx))
	second := <-passed
	if second.Token() <= first.Token() {
		t.Errorf("token %d after %d", second.Token(), first.Token())
	}
	if second.Token() >= other.Token() {
		t.Errorf("token %d, and somebody else has %d since", second.Token(), other.Token())
	}
	<-second.Done()
	if !errors.Is(second.Err(), dlock.ErrLost) {
		t.Error(second.Err())
	}
	if other.Err() != nil {
		t.Error(other.Err())
	}
	must[any](t)(nil, other.Unlock(ctx))
}

func proxiedURL(t testing.TB) (*faultnet.Proxy, string) {
	p := must[*faultnet.Proxy](t)(faultnet.Listen(shared.Addr()))
	t.Cleanup(func() { _ = p.Close() })
	return p, "redis://" + p.Addr()
}

// TestAnswerAfterTheLease has every answer take longer than a lease: there is no
// hope for who does not wait, and who waits can be turned away.
func TestAnswerAfterTheLease(t *testing.T) {
	p, url := proxiedURL(t)
	c := openURL(t, url, &dlock.Options{TTL: 50 * time.Millisecond})
	p.Delay(faultnet.BothWays, 60*time.Millisecond, 0)
	_, err := c.Mutex(t.Name()).TryLock(context.Background())
	is(t, err, dlock.ErrUnavailable)
	waited := make(chan error, 1)
	go func() {
		_, err := c.Mutex(t.Name()).Lock(context.Background())
		waited <- err
	}()
	before := scriptCalls(t)
	eventually(t, "the lock is granted, too late", func() bool { return scriptCalls(t) > before })
	ctx, cancel := context.WithTimeout(within(t), 5*time.Second)
	defer cancel()
	_ = c.Close(ctx)
	is(t, <-waited, dlock.ErrClosed)
}

// TestUnlockOfAForgottenLock cannot reach the server at first, which has forgotten
// the lock when it can.
func TestUnlockOfAForgottenLock(t *testing.T) {
	t.Parallel()
	s := server.Start(t, server.Redis{})
	c := openClient(t, s, nil)
	lease := must[*dlock.Lease](t)(c.Mutex(t.Name()).Lock(within(t)))
	must[any](t)(nil, s.Kill())
	unlocked := make(chan error, 1)
	go func() { unlocked <- lease.Unlock(within(t)) }()
	time.Sleep(300 * time.Millisecond) // it has been tried
	must[any](t)(nil, s.Restart(false))
	is(t, <-unlocked, dlock.ErrLost)
}

// TestFixedGrantToldTwice loses the answer to a lock that is to last for a certain
// time. The second answer does not have it last for twice as long.
func TestFixedGrantToldTwice(t *testing.T) {
	t.Parallel()
	p, url := proxiedURL(t)
	c := openURL(t, url, &dlock.Options{TTL: time.Minute})
	first := must[*dlock.Lease](t)(c.Mutex(t.Name() + "/first").Lock(within(t))) // the server has the script
	must[any](t)(nil, first.Unlock(within(t)))
	p.Blackhole(faultnet.ToClient)
	time.AfterFunc(300*time.Millisecond, func() {
		p.Reset()
		_ = p.Heal()
	})
	const longest = 50 * time.Second
	lease := must[*dlock.Lease](t)(c.Mutex(t.Name(), dlock.WithMaxHold(longest)).Lock(within(t)))
	e := must[string](t)(plainClient(t, shared).HGet(t.Context(), mainKey(t.Name()), "e").Result())
	if left := time.Until(time.UnixMilli(must[int64](t)(strconv.ParseInt(e, 10, 64)))); left > longest*5/4 {
		t.Errorf("kept for %v more", left)
	}
	must[any](t)(nil, lease.Unlock(within(t)))
}

// TestHeadBehindTheDead has just as many waiters be gone as one script looks at. The
// next one is the head then, of a lock that nobody holds yet.
func TestHeadBehindTheDead(t *testing.T) {
	const most = 128
	c, k, now := plainClient(t, shared), lockKey(t.Name()), time.Now()
	alive := now.Add(time.Minute).UnixMilli()
	me := "w1000:me:1"
	for i := range most + 1 {
		id := "w1000:gone:" + strconv.Itoa(i+1)
		if i == most {
			id = me
		}
		must[any](t)(c.Do(t.Context(), "zadd", string(k)+":q", now.UnixMicro()+int64(i), id).Result())
		must[any](t)(c.Do(t.Context(), "zadd", string(k)+":a", alive, id).Result())
	}
	must[any](t)(c.Do(t.Context(), "hset", string(k), "b", "1", "a", alive, "t", now.UnixMicro()).Result())
	keys := make([]string, len(suffixes))
	for i, suffix := range suffixes {
		keys[i] = string(k) + suffix
	}
	reply := must[[]any](t)(c.Eval(t.Context(), acquireScript.source, keys, me, 1000, "p").Slice())
	if reply[0] != "QUEUED" || reply[4].(int64) > 5 {
		t.Errorf("the head is told %v", reply)
	}
}

// TestSeldomPollKeepsItsPlace asks less often than a grant lasts that nobody has
// confirmed, and is first in the queue.
func TestSeldomPollKeepsItsPlace(t *testing.T) {
	t.Parallel()
	url := "redis://" + shared.Addr()
	holder := must[*dlock.Lease](t)(openURL(t, url, nil).Mutex(t.Name()).Lock(within(t)))
	look, order := plainClient(t, shared), make(chan int, 2)
	var all sync.WaitGroup
	for i, query := range []string{"?dlock.wake=poll&dlock.poll=8s", ""} {
		c := openURL(t, url+query, nil)
		all.Go(func() {
			lease := must[*dlock.Lease](t)(c.Mutex(t.Name()).Lock(within(t)))
			order <- i
			must[any](t)(nil, lease.Unlock(within(t)))
		})
		eventually(t, "it waits", func() bool {
			return look.ZCard(t.Context(), mainKey(t.Name())+":q").Val() == int64(i+1)
		})
	}
	must[any](t)(nil, holder.Unlock(within(t)))
	if first := <-order; first != 0 {
		t.Errorf("number %d of the queue came first", first)
	}
	all.Wait()
}

// TestWantedByNobodyWhoCanTell has a lock that is never renewed, on a client that
// cannot be told either.
func TestWantedByNobodyWhoCanTell(t *testing.T) {
	c := openURL(t, "redis://"+shared.Addr()+"?dlock.wake=poll", &dlock.Options{TTL: time.Minute})
	lease := must[*dlock.Lease](t)(c.Mutex(t.Name(), dlock.WithMaxHold(30*time.Second)).Lock(within(t)))
	if lease.Wanted() != nil {
		t.Error("the lease promises to tell when it is wanted")
	}
	must[any](t)(nil, lease.Unlock(within(t)))
}

// TestWaitersAskInStep has waiters ask no later than they should, and together.
func TestWaitersAskInStep(t *testing.T) {
	for pause := leastPause; pause <= 2*time.Minute; pause += 7 * time.Second {
		for range 1000 {
			seq, now := rand.Uint64N(1e6), rand.N(2*time.Hour)-time.Hour
			d := inStep(now, pause, seq)
			if d <= 0 || d > pause {
				t.Fatalf("from %v on a waiter is to ask every %v, and asks after %v", now, pause, d)
			}
			other := now + rand.N(d) // comes before that
			if at := other + inStep(other, pause, seq-seq%100+rand.Uint64N(100)); at != now+d {
				t.Fatalf("two of a hundred waiters ask at %v and %v", now+d, at)
			}
		}
	}
}

// TestIdleWaitersRest has waiters come one after the other. They do not ask one after the
// other for that.
func TestIdleWaitersRest(t *testing.T) {
	t.Parallel()
	s := server.Start(t, server.Redis{})
	holder, waiter := openClient(t, s, &dlock.Options{TTL: time.Hour}), openClient(t, s, &dlock.Options{TTL: time.Hour})
	ctx, cancel := context.WithCancel(within(t))
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	const waiters = 20
	for i := range waiters {
		name := fmt.Sprint(t.Name(), i)
		must[*dlock.Lease](t)(holder.Mutex(name).Lock(ctx))
		all.Go(func() { _, _ = waiter.Mutex(name).Lock(ctx) })
		time.Sleep(leastPause / waiters)
	}
	eventually(t, "nobody asks for three seconds", func() bool {
		before := scriptsOf(t, s)
		time.Sleep(3 * time.Second)
		return scriptsOf(t, s) == before
	})
}
