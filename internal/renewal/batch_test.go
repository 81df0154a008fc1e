package renewal

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// TestBatches has holds of a few lengths come, go and be renewed, or not, at random.
// At any time each is in a batch that is no later than it and hardly earlier, and
// batches are few.
func TestBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(renewFunc(func(ctx context.Context, h *backend.Hold) error {
			switch time.Sleep(time.Duration(h.ID.Seq) * time.Millisecond); h.ID.Seq % 7 {
			case 0:
				return errors.New("no answer")
			case 1:
				return backend.ErrLost
			}
			return extend(ctx, h)
		}))
		defer k.Close()
		kept := make(map[*Item]*backend.Hold)
		for i := range uint64(5000) {
			time.Sleep(rand.N(20 * time.Millisecond))
			h := granted([]time.Duration{3 * time.Second, 10 * time.Second, time.Minute}[rand.N(3)])
			h.Sent = h.Sent.Add(-rand.N(100 * time.Millisecond)) // an answer takes its time
			h.ID.Seq = i % 50
			it := &Item{Hold: h}
			maxHold := time.Duration(0)
			if i%10 == 0 {
				maxHold = h.TTL * 2
			}
			if !k.Add(it, maxHold, newOwner()) {
				t.Fatal("not added")
			}
			kept[it] = h
			for other := range kept {
				if rand.N(20) == 0 {
					k.Remove(t.Context(), other)
					delete(kept, other)
				}
			}
			synctest.Wait()
			checkBatches(t, k, kept)
		}
	})
}

func checkBatches(t *testing.T, k *Keeper, kept map[*Item]*backend.Hold) {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	in := 0
	for i, d := range k.schedule.dates {
		if int(d.batch.index) != i+1 || d.at != d.batch.next(k.schedule.earlyEnd) || d.at < k.schedule.dates[0].at {
			t.Fatalf("batch %d of %d has place %d and date %v", i, len(k.schedule.dates), d.batch.index, d)
		}
		in += len(d.batch.items)
	}
	for it, h := range kept {
		l := it.batch.Load()
		if it.place == 0 {
			continue // lost
		}
		in--
		if l.items[it.place-1] != it || l.index == 0 {
			t.Fatal("a hold is not where it should be")
		}
		if it.isRenewing {
			continue // its renewal may change it now
		}
		own, early := k.clock.deadline(h), moment(h.TTL/tolerancePart)
		if at := l.deadline.running; at > own.running || at < own.running-early || l.deadline.wall > own.wall {
			t.Fatalf("believed in until %v, its own deadline is %v", l.deadline, own)
		}
	}
	if in != 0 {
		t.Fatalf("%d holds too many are kept", in)
	}
}

// TestManyHoldsFewBatches takes a thousand locks in a second: neither then nor when
// they have been renewed for a while there is a date for each.
func TestManyHoldsFewBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(renewFunc(extend))
		defer k.Close()
		for range 1000 {
			add(t, k, granted(30*time.Second), newOwner())
			time.Sleep(time.Millisecond)
		}
		for range 10 {
			synctest.Wait()
			k.mu.Lock()
			if n := len(k.schedule.dates); n > 5 {
				t.Errorf("%d batches", n)
			}
			k.mu.Unlock()
			time.Sleep(11 * time.Second)
		}
	})
}

// TestBatchesOfNobody has nothing left of locks that nobody holds any more, whatever
// their TTLs were.
func TestBatchesOfNobody(t *testing.T) {
	k, o := newKeeper(renewFunc(extend)), newOwner()
	defer k.Close()
	for i := range 1000 {
		it := add(t, k, granted(time.Hour+time.Duration(i)*time.Second), o)
		k.Remove(t.Context(), it)
	}
	if n := len(k.schedule.dates); n > maxFilling {
		t.Errorf("%d batches of nobody", n)
	}
}

// TestBatchOfWhomAllAreOnTheirWay has one of two holds that are renewed together
// fail and be released, and its batch come due while the other is still under way.
func TestBatchOfWhomAllAreOnTheirWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, quick := granted(30*time.Second), granted(30*time.Second)
		k := newKeeper(renewFunc(func(ctx context.Context, h *backend.Hold) error {
			if h == quick {
				return errors.New("no answer")
			}
			time.Sleep(5 * time.Second)
			return extend(ctx, h)
		}))
		defer k.Close()
		o := newOwner()
		add(t, k, slow, o)
		it := add(t, k, quick, newOwner())
		time.Sleep(10*time.Second + time.Millisecond)
		if !k.Remove(t.Context(), it) {
			t.Fatal("not removed")
		}
		<-o.renewed
	})
}

// TestFailedRenewalIsRepeated has the first renewal of holds that share a batch fail.
func TestFailedRenewalIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := time.Now().Add(12 * time.Second)
		k, o := newKeeper(renewFunc(func(ctx context.Context, h *backend.Hold) error {
			if time.Now().Before(first) {
				return errors.New("no answer")
			}
			return extend(ctx, h)
		})), newOwner()
		defer k.Close()
		const n = 3
		for range n {
			add(t, k, granted(30*time.Second), o)
		}
		time.Sleep(18 * time.Second)
		if renewed, lost := len(o.renewed), len(o.lost); renewed != n || lost != 0 {
			t.Errorf("%d renewed and %d lost of %d", renewed, lost, n)
		}
	})
}
