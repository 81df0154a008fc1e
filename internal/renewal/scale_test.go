package renewal

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// batchFunc answers for all holds of a call.
type batchFunc func(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error))

func (f batchFunc) Renew(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	f(ctx, holds, report)
}

// counter counts what becomes of many holds.
type counter struct{ over, reported, renewed atomic.Int64 }

func (c *counter) End(error) bool { c.over.Add(1); return true }
func (c *counter) Renewed(Lease)  { c.renewed.Add(1) }

func (c *counter) RenewalFailed(Lease, error) {}

// newCounting returns a keeper of holds whose owner is c.
func newCounting(r backend.Renewer, c *counter) *Keeper {
	return New(r, func(lost []Loss) { c.reported.Add(int64(len(lost))) })
}

func addMany(t *testing.T, k *Keeper, n int, ttl time.Duration, o Owner) {
	t.Helper()
	for range n {
		add(t, k, granted(ttl), o)
	}
}

// A queue is a server that renews one hold after the other.
type queue struct {
	each time.Duration // what one takes

	mu   sync.Mutex
	free time.Time // from then on it has nothing to do
	most int       // that it has had at a time
	now  int
}

func (q *queue) Renew(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	sent := time.Now()
	q.mu.Lock()
	if q.free.Before(sent) {
		q.free = sent
	}
	q.free = q.free.Add(q.each * time.Duration(len(holds)))
	done := q.free
	q.now += len(holds)
	q.most = max(q.most, q.now)
	q.mu.Unlock()
	time.Sleep(time.Until(done)) // whether or not somebody still waits
	q.mu.Lock()
	q.now -= len(holds)
	q.mu.Unlock()
	for _, h := range holds {
		if err := ctx.Err(); err != nil {
			report(h, err)
			continue
		}
		h.Sent, h.Granted = sent, h.TTL
		report(h, nil)
	}
}

// All holds that are over at a time are over before anything is reported.
func TestAllAreOverBeforeOneIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 5000
		var c counter
		k := New(renewFunc(func(context.Context, *backend.Hold) error { return errors.New("down") }), func(lost []Loss) {
			if over := c.over.Load(); over != n {
				t.Errorf("%d of %d are over when the first is reported", over, n)
			}
			c.reported.Add(int64(len(lost)))
		})
		defer k.Close()
		for i := range n { // in a few batches
			add(t, k, granted(100*time.Millisecond+time.Duration(i%4)*time.Microsecond), &c)
		}
		time.Sleep(time.Second)
		if got := c.reported.Load(); got != n {
			t.Errorf("%d of %d were reported", got, n)
		}
	})
}

// The more holds there are the earlier their end begins, so that it is done by the
// deadline. It is earlier by less than a third for ever so many.
func TestTheEndOfManyBeginsEarlier(t *testing.T) {
	for _, test := range []struct {
		n        int
		ttl      time.Duration
		from, to time.Duration
	}{
		{100, 10 * time.Second, 9 * time.Second, 9 * time.Second},
		{50_000, 10 * time.Second, 8700 * time.Millisecond, 9*time.Second - time.Duration(50_000*endCost)},
		{100_000, 100 * time.Millisecond, 60 * time.Millisecond, 61 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			var c counter
			k := newCounting(nil, &c)
			defer k.Close()
			addMany(t, k, test.n, test.ttl, &c)
			time.Sleep(test.from - time.Nanosecond)
			synctest.Wait()
			if n := c.over.Load(); n > 0 {
				t.Errorf("%d of %d holds of %v over after %v", n, test.n, test.ttl, test.from)
			}
			time.Sleep(test.to - test.from + time.Nanosecond)
			synctest.Wait()
			if n := c.over.Load(); n != int64(test.n) {
				t.Errorf("%d of %d holds of %v over after %v", n, test.n, test.ttl, test.to)
			}
		})
	}
}

// Holds that were taken at one moment are not renewed at one moment.
func TestRenewalsArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 8000
		var c counter
		calls := make(map[time.Duration]int)
		start := time.Now()
		var mu sync.Mutex
		k := newCounting(batchFunc(func(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
			mu.Lock()
			calls[time.Since(start).Truncate(time.Millisecond)] += len(holds)
			mu.Unlock()
			for _, h := range holds {
				report(h, extend(ctx, h))
			}
		}), &c)
		defer k.Close()
		addMany(t, k, n, 30*time.Second, &c)
		time.Sleep(time.Minute)
		most := 0
		mu.Lock()
		defer mu.Unlock()
		for _, n := range calls {
			most = max(most, n)
		}
		if most > 2*burst {
			t.Errorf("%d renewals in a millisecond, want %d at most", most, burst)
		}
		if got := c.renewed.Load(); got < 5*n || got > 7*n {
			t.Errorf("%d renewals of %d holds in two leases, want about 6 of each", got, n)
		}
	})
}

// Holds that were taken at one moment are renewed at all times of a period before long, so
// that no part of it is much slower for others.
func TestRenewalsSpreadOverThePeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, ttl, parts = 50_000, 30 * time.Second, 10
		var c counter
		k := newCounting(&queue{each: 5 * time.Microsecond}, &c)
		defer k.Close()
		addMany(t, k, n, ttl, &c)
		time.Sleep(3 * ttl)
		var most, all int64
		for range parts {
			before := c.renewed.Load()
			time.Sleep(ttl / 3 / parts)
			now := c.renewed.Load() - before
			most, all = max(most, now), all+now
		}
		if most > 3*n/parts {
			t.Errorf("%d of %d renewals in a tenth of a period", most, all)
		}
		if lost := c.over.Load(); lost > 0 || all > n*9/8 {
			t.Errorf("%d renewals of %d holds in a period, %d lost", all, n, lost)
		}
	})
}

// A server that comes back shortly before the end of leases that began together finds all
// of them late, however lately each was tried: they are not spread.
func TestServerBackShortlyBeforeTheEnd(t *testing.T) {
	for n, left := range map[int]time.Duration{1000: 100 * time.Millisecond, 5000: 200 * time.Millisecond, 20_000: 400 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			const ttl = 30 * time.Second
			var up atomic.Bool
			var c counter
			k := newCounting(batchFunc(func(_ context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
				sent, works := time.Now(), up.Load()
				time.Sleep(time.Millisecond)
				for _, h := range holds {
					if !works {
						report(h, errors.New("away"))
						continue
					}
					h.Sent, h.Granted = sent, h.TTL
					report(h, nil)
				}
			}), &c)
			defer k.Close()
			addMany(t, k, n, ttl, &c)
			time.Sleep(ttl - backend.Margin(ttl) - left)
			up.Store(true)
			time.Sleep(ttl / 2)
			if lost := c.over.Load(); lost > 0 {
				t.Errorf("%d of %d lost, the server was back %v before", lost, n, left)
			}
		})
	}
}

// Who is tried again is renewed as soon as who was late and never tried.
func TestRetryIsAsLateAsItsFirstAttempt(t *testing.T) {
	const at = moment(20 * time.Second)
	k := newCounting(nil, new(counter))
	defer k.Close()
	k.count, k.window, k.renewalRate, k.minLatency = 100_000, 50_000, 1e13, moment(time.Millisecond)
	for _, first := range []time.Duration{0, 10 * time.Second, 18 * time.Second, 20 * time.Second} {
		var got [2][3]int
		for i, due := range []moment{moment(first), at} {
			k.queue = []*batch{{plan: plan{ttl: 30 * time.Second, lease: 30 * time.Second, first: moment(first), due: due}}}
			got[i] = [3]int{k.quota(at), k.usualInFlight(at), int(k.interval(at))}
		}
		k.queue = nil
		if got[0] != got[1] {
			t.Errorf("first due at %v: never tried %v, tried again %v", first, got[0], got[1])
		}
	}
}

// On a machine whose timers fire late another request waits for few renewals all the same:
// those that are due go to the server as it answers, and not all at once.
func TestLateTimersMakeNoBursts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, ttl, late = 100_000, 6 * time.Second, 10 * time.Millisecond
		var c counter
		q := &queue{each: 5 * time.Microsecond}
		k := newCounting(q, &c)
		defer k.Close()
		for i := range n {
			add(t, k, granted(ttl), &c)
			if i%100 == 0 {
				time.Sleep(ttl / 3 * 100 / n)
			}
		}
		time.Sleep(ttl)
		q.mu.Lock()
		q.most = 0
		q.mu.Unlock()
		for range 3 * ttl / (2 * late) {
			k.mu.Lock()
			k.armed = 0 // nothing sets the timer anew
			k.timer.Reset(late)
			k.mu.Unlock()
			time.Sleep(2 * late)
		}
		q.mu.Lock()
		if q.most > 4*burst {
			t.Errorf("%d renewals under way, want %d at most", q.most, 4*burst)
		}
		q.mu.Unlock()
		if lost := c.over.Load(); lost > 0 {
			t.Errorf("%d lost", lost)
		}
	})
}

// A server that cannot keep up has an eighth of the holds before it at most.
func TestRenewalsUnderWayAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 12_000
		var c counter
		q := &queue{each: 100 * time.Microsecond} // all of them in 1.2 s
		k := newCounting(q, &c)
		defer k.Close()
		addMany(t, k, n, 4*time.Second, &c)
		time.Sleep(10 * time.Second)
		q.mu.Lock()
		if q.most > n/inFlightPart {
			t.Errorf("%d of %d under way", q.most, n)
		}
		q.mu.Unlock()
		if lost := c.over.Load(); lost > 0 {
			t.Errorf("%d lost that could be kept", lost)
		}
	})
}

// The holds that have the least time left are renewed first.
func TestEarliestDeadlineFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var long, short counter
		k := newCounting(&queue{each: 200 * time.Microsecond}, &long)
		defer k.Close()
		for range 3000 { // due first, and with time enough
			h := granted(10 * time.Second)
			h.RenewIn = 390 * time.Millisecond
			add(t, k, h, &long)
		}
		addMany(t, k, 500, 1200*time.Millisecond, &short)
		time.Sleep(30 * time.Second)
		if lost := long.over.Load() + short.over.Load(); lost > 0 {
			t.Errorf("%d lost: %d of the short ones", lost, short.over.Load())
		}
	})
}

// Most holds are on a server that does not answer: they do not take the place of the
// others.
func TestHoldsOnASilentServerDelayNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 10_000
		var good, bad counter
		stuck := make(map[*backend.Hold]bool)
		k := newCounting(batchFunc(func(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
			time.Sleep(10 * time.Millisecond)
			for _, h := range holds {
				if !stuck[h] {
					report(h, extend(ctx, h))
				}
			}
			<-ctx.Done()
			for _, h := range holds {
				if stuck[h] {
					report(h, ctx.Err())
				}
			}
		}), &good)
		defer k.Close()
		for i := range n {
			h, o := granted(10*time.Second), &good
			if i%10 != 0 {
				stuck[h] = true
				o = &bad
			}
			add(t, k, h, o)
		}
		time.Sleep(time.Minute)
		if good.over.Load() > 0 || bad.over.Load() != n*9/10 {
			t.Errorf("lost %d of the good and %d of the bad", good.over.Load(), bad.over.Load())
		}
	})
}

// Holds of a long TTL whose renewal is not answered do not keep those of a short one
// from being renewed, not even before the first answer.
func TestUnansweredLongTTLsDelayNoShortOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var long, short counter
		k := newCounting(batchFunc(func(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
			for _, h := range holds {
				if h.TTL == time.Hour {
					<-ctx.Done()
					report(h, ctx.Err())
				} else {
					report(h, extend(ctx, h))
				}
			}
		}), &long)
		defer k.Close()
		addMany(t, k, 3*smallClient, time.Hour, &long)
		time.Sleep(25 * time.Minute) // when as many as may be are under way
		addMany(t, k, 10, time.Second, &short)
		time.Sleep(30 * time.Minute)
		if lost := short.over.Load(); lost > 0 {
			t.Errorf("%d lost that could be renewed", lost)
		}
	})
}

// While no attempt is answered there are few.
func TestFewAttemptsWhileTheServerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 12_000
		var c counter
		var down atomic.Bool
		var tries atomic.Int64
		k := newCounting(renewFunc(func(ctx context.Context, h *backend.Hold) error {
			if down.Load() {
				tries.Add(1)
				return errors.New("refused")
			}
			return extend(ctx, h)
		}), &c)
		defer k.Close()
		addMany(t, k, n, 30*time.Second, &c)
		down.Store(true)
		time.Sleep(28 * time.Second)
		if got := tries.Load(); got > 11*n {
			t.Errorf("%d attempts for %d holds", got, n)
		}
		down.Store(false)
		time.Sleep(time.Minute)
		if lost := c.over.Load(); lost > 0 {
			t.Errorf("%d of %d lost, though the server was back a second before their end", lost, n)
		}
	})
}

// A server that is back shortly before the end of the lease finds nothing lost.
func TestTriesComeCloserAsTheEndDoes(t *testing.T) {
	for _, back := range []time.Duration{24 * time.Second, 27 * time.Second, 28 * time.Second, 28700 * time.Millisecond} {
		lost := 0
		for range 100 {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				k, o := newKeeper(renewFunc(func(ctx context.Context, h *backend.Hold) error {
					if time.Since(begin) < back {
						return errors.New("refused")
					}
					return extend(ctx, h)
				})), newOwner()
				defer k.Close()
				add(t, k, granted(30*time.Second), o)
				select {
				case <-o.lost:
					lost++
				case <-o.renewed:
				}
			})
		}
		if lost > 0 {
			t.Errorf("%d of 100 lost when the server is back after %v of 30s", lost, back)
		}
	}
}

// Only the first report of a renewal counts, and one that is missing is a failure.
func TestReportsThatAreTooManyOrMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		again := make(chan struct{})
		var calls atomic.Int64
		k := newKeeper(batchFunc(func(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
			if calls.Add(1) == 1 {
				return // and nothing was reported
			}
			for _, h := range holds {
				report(h, extend(ctx, h))
			}
			<-again
			for _, h := range holds {
				report(h, errors.New("again"))
			}
		}))
		defer k.Close()
		o := newOwner()
		it := add(t, k, granted(30*time.Second), o)
		<-o.renewed
		if !k.Borrow(t.Context(), it) {
			t.Fatal("not lent")
		}
		close(again)
		synctest.Wait()
		k.mu.Lock()
		busy := it.isRenewing
		k.mu.Unlock()
		if !busy {
			t.Fatal("a second report has ended the loan")
		}
		k.Return(it)
		<-o.renewed
	})
}

// New locks are slowed down, and refused, before others are lost for them. To take
// one costs the server as much as to renew two.
func TestOverloadIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = time.Second
		q := &queue{each: 100 * time.Microsecond} // 10,000 a second: it can keep fewer than 9,000
		var c counter
		k := newCounting(q, &c)
		defer k.Close()
		var refused, taken atomic.Int64
		var all sync.WaitGroup
		for range 64 {
			all.Go(func() {
				for end := time.Now().Add(12 * time.Second); time.Now().Before(end); {
					if err := k.Admit(t.Context()); err != nil {
						if !errors.Is(err, ErrBehind) || !errors.Is(err, backend.ErrUnavailable) {
							t.Error(err)
						}
						refused.Add(1)
						continue
					}
					q.Renew(t.Context(), []*backend.Hold{granted(ttl), granted(ttl)}, func(*backend.Hold, error) {})
					taken.Add(1)
					add(t, k, granted(ttl), &c)
				}
			})
		}
		all.Wait()
		time.Sleep(5 * time.Second)
		if lost := c.over.Load(); lost > 0 {
			t.Errorf("%d of %d lost", lost, taken.Load())
		}
		if refused.Load() == 0 || taken.Load() < 4000 {
			t.Errorf("%d taken and %d refused", taken.Load(), refused.Load())
		}
		t.Logf("%d taken, %d refused", taken.Load(), refused.Load())
	})
}

// A few holds that are renewed late hold up nobody.
func TestAFewLateRenewalsRefuseNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c counter
		k := newCounting(&queue{each: 10 * time.Millisecond}, &c)
		defer k.Close()
		addMany(t, k, 50, time.Second, &c)
		time.Sleep(700 * time.Millisecond)
		start := time.Now()
		if err := k.Admit(t.Context()); err != nil || time.Since(start) > 0 {
			t.Errorf("waited %v: %v", time.Since(start), err)
		}
	})
}

// What can wait for renewals that are late does, until they are not.
func TestCalmWaitsForLateRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(nil)
		defer k.Close()
		k.slowDown(moment(time.Second), 0)
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		k.AwaitCalm(ctx)
		if waited := time.Since(start); waited != 100*time.Millisecond {
			t.Errorf("waited %v, want as long as its context", waited)
		}
		k.AwaitCalm(t.Context())
		if waited := time.Since(start); waited != time.Second {
			t.Errorf("waited %v, want as long as renewals are late", waited)
		}
	})
}
