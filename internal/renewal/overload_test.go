package renewal

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// Of ever so many holds the server goes on to renew nearly as many as it can within
// their leases. The others are lost in the first two of these, and none later: some are
// renewed once before it shows that they are too many.
func TestOverloadKeepsWhatCanBeRenewed(t *testing.T) {
	const second, ttl = 20_000, time.Second // so many renewals a second
	for _, n := range []int{second / 3, second * 2 / 3, second * 4 / 3, second * 8 / 3} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var c counter
				k := newCounting(&queue{each: time.Second / second}, &c)
				defer k.Close()
				for i := range n {
					add(t, k, granted(ttl), &c)
					if i%(n/100) == 0 {
						time.Sleep(ttl / 100)
					}
				}
				time.Sleep(3 * ttl)
				lost := c.over.Load()
				if kept, most := n-int(lost), second*9/10; kept < min(n, most*7/10) {
					t.Errorf("%d of %d kept, where %d can be renewed in a lease", kept, n, most)
				}
				time.Sleep(5 * ttl)
				if more := int(c.over.Load() - lost); more > n/1000 {
					t.Errorf("%d more lost later", more)
				}
			})
		})
	}
}

// A server that has become slow is not asked for what it is about to answer.
func TestASlowServerIsNotAskedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 2000
		var c counter
		var mu sync.Mutex
		asked, twice := make(map[*backend.Hold]bool), 0
		mark := func(holds []*backend.Hold, yes bool) {
			mu.Lock()
			defer mu.Unlock()
			for _, h := range holds {
				if yes && asked[h] {
					twice++
				}
				asked[h] = yes
			}
		}
		start := time.Now()
		k := newCounting(batchFunc(func(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
			mark(holds, true)
			sent := time.Now()
			time.Sleep(min(380*time.Millisecond, sent.Sub(start)/10)) // of the 567 that are left
			mark(holds, false)
			for _, h := range holds {
				if err := ctx.Err(); err != nil {
					report(h, err)
					continue
				}
				h.Sent, h.Granted = sent, h.TTL
				report(h, nil)
			}
		}), &c)
		defer k.Close()
		for range n {
			add(t, k, granted(time.Second), &c)
			time.Sleep(time.Second / n)
		}
		time.Sleep(10 * time.Second)
		if twice > 0 || c.over.Load() > 0 {
			t.Errorf("%d renewals sent again before the first was answered, %d lost", twice, c.over.Load())
		}
	})
}

// What a server has passed over is asked for again, in time.
func TestWhatWasPassedOverIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := granted(time.Second)
		var tries atomic.Int64
		k := newKeeper(renewFunc(func(ctx context.Context, h *backend.Hold) error {
			if h == stuck {
				if tries.Add(1) == 1 {
					<-ctx.Done()
					return ctx.Err()
				}
				time.Sleep(50 * time.Millisecond)
			}
			return extend(ctx, h)
		}))
		defer k.Close()
		o, others := newOwner(), newOwner()
		add(t, k, stuck, o)
		for range 100 {
			add(t, k, granted(time.Second), others)
			time.Sleep(5 * time.Millisecond)
		}
		select {
		case <-o.renewed:
		case <-o.lost:
			t.Error("lost with a request that was never answered")
		}
	})
}

// Holds whose leases end one after the other have all of these.
func TestHoldsThatEndApartEndLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 100_000
		var c counter
		k := newCounting(nil, &c)
		defer k.Close()
		for i := range n {
			add(t, k, granted(10*time.Second), &c)
			if i%100 == 0 {
				time.Sleep(2 * time.Millisecond)
			}
		}
		time.Sleep(6900 * time.Millisecond) // 8.9 s after the first
		synctest.Wait()
		if over := c.over.Load(); over > n/20 {
			t.Errorf("%d of %d over a tenth of a second before the first should be", over, n)
		}
	})
}

// A loss is reported within a second, though others are lost all the time.
func TestLossIsReportedWhileOthersEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 100_000
		var c counter
		k := newCounting(renewFunc(func(context.Context, *backend.Hold) error { return errors.New("down") }), &c)
		defer k.Close()
		addMany(t, k, n, time.Hour, &c)
		for range 3000 {
			add(t, k, granted(time.Second), &c)
			time.Sleep(time.Millisecond)
		}
		if over, reported := c.over.Load(), c.reported.Load(); reported < over/3 {
			t.Errorf("%d of %d reported in two seconds", reported, over)
		}
	})
}

// While renewals wait for one another as many locks are taken as are given back, and
// few more.
func TestChurnGoesOnUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 2000
		var c counter
		k := newCounting(renewFunc(extend), &c)
		defer k.Close()
		var held []*Item
		for range n {
			held = append(held, add(t, k, granted(time.Hour), &c))
		}
		k.slowDown(0, moment(time.Hour))
		start := time.Now()
		for _, it := range held {
			k.Remove(t.Context(), it)
			if err := k.Admit(t.Context()); err != nil {
				t.Fatal(err)
			}
			add(t, k, granted(time.Hour), &c)
		}
		if took := time.Since(start); took > 0 {
			t.Errorf("%d locks, each for one that was given back, took %v", n, took)
		}
		more := 0
		for k.Admit(t.Context()) == nil {
			more++
		}
		if more > 2*burst {
			t.Errorf("%d more at once", more)
		}
	})
}

// Whoever has given back what was too much may take locks again, and need not wait for
// what late renewals have said of the many.
func TestFewAreTakenAfterOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 30 * time.Second
		var c counter
		k := newCounting(renewFunc(extend), &c)
		defer k.Close()
		var held []*Item
		for range 2 * smallClient {
			held = append(held, add(t, k, granted(ttl), &c))
		}
		k.slowDown(moment(ttl), moment(ttl))
		if err := k.Admit(t.Context()); !errors.Is(err, ErrBehind) {
			t.Errorf("beside many whose renewals are late: %v", err)
		}
		for _, it := range held {
			k.Remove(t.Context(), it)
		}
		start := time.Now()
		for range 100 {
			if err := k.Admit(t.Context()); err != nil {
				t.Fatal(err)
			}
			add(t, k, granted(ttl), &c)
		}
		if took := time.Since(start); took > 0 {
			t.Errorf("a few locks took %v", took)
		}
	})
}

// slowDown has new locks stopped and slowed down for so long.
func (k *Keeper) slowDown(stop, slow moment) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.clock.now().at
	k.overload.stopUntil, k.overload.slowUntil = now+stop, now+slow
}
