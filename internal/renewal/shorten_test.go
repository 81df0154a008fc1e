package renewal

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// Of a hold that was proven a moment ago the server has only what was proven earlier. It is renewed at
// once, or ends with that. Neither a later end, nor one for ever, changes anything.
func TestShorten(t *testing.T) {
	for _, up := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			k, o := newKeeper(renewFunc(func(ctx context.Context, h *backend.Hold) error {
				if !up {
					return errors.New("down")
				}
				return extend(ctx, h)
			})), newOwner()
			defer k.Close()
			old := time.Now()
			time.Sleep(20 * time.Second)
			it := add(t, k, granted(30*time.Second), o)
			k.Shorten(it, time.Now(), time.Minute)
			k.Shorten(it, time.Now(), 0)
			if left, _ := k.Left(it); left != 29*time.Second {
				t.Errorf("%v are left, want 29s", left)
			}
			k.Shorten(it, old, 30*time.Second)
			if left, _ := k.Left(it); left != 9*time.Second {
				t.Errorf("%v are left, want 9s", left)
			}
			start := time.Now()
			select {
			case <-o.renewed:
				if at := time.Since(start); at > time.Second {
					t.Errorf("renewed after %v", at)
				}
			case <-o.lost:
				if at := time.Since(start); up || at != 9*time.Second {
					t.Errorf("ended after %v", at)
				}
				return
			}
			if left, _ := k.Left(it); left < 28*time.Second {
				t.Errorf("%v are left after a renewal, want 29s", left)
			}
		})
	}
}

// A machine sleeps until a shortened hold is over. The first look says so, before any timer fires.
func TestShortenedHoldEndsWhileTheMachineSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, o := newKeeper(nil), newOwner()
		sleep := sleeper(k)
		defer k.Close()
		old := time.Now()
		time.Sleep(20 * time.Second)
		it := add(t, k, granted(30*time.Second), o)
		k.Shorten(it, old, 30*time.Second)
		sleep(8 * time.Second)
		if err := k.Expired(it); err != nil {
			t.Errorf("over a second early: %v", err)
		}
		sleep(2 * time.Second)
		if k.Expired(it) == nil {
			t.Error("not over at the first look")
		}
	})
}

// A hold may be shortened before it is added, and after it was refused or removed.
func TestShortenOutsideOfTheKeeper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, o := newKeeper(nil), newOwner()
		defer k.Close()
		old := time.Now()
		time.Sleep(20 * time.Second)
		it := &Item{Hold: granted(30 * time.Second)}
		k.Shorten(it, old, 30*time.Second)
		if !k.Add(it, 0, o) {
			t.Fatal("not added")
		}
		if left, _ := k.Left(it); left != 9*time.Second {
			t.Errorf("%v are left, want 9s", left)
		}
		k.Remove(t.Context(), it)
		k.Shorten(it, old, time.Second)
		refused := &Item{Hold: &backend.Hold{Sent: old, Granted: time.Second}}
		if k.Add(refused, 0, o) {
			t.Fatal("a hold was added that is over")
		}
		k.Shorten(refused, old, time.Second)
		time.Sleep(time.Minute)
		if len(o.lost) > 0 {
			t.Error("the loss of a hold that is not kept is reported")
		}
	})
}

// A thousand holds that are shortened together, while others are renewed, share their batches.
func TestShortenedHoldsShareBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, o := newKeeper(renewFunc(extend)), newOwner()
		defer k.Close()
		old := time.Now()
		time.Sleep(20 * time.Second)
		for i := range 1000 {
			at := time.Duration(i) * time.Microsecond
			k.Shorten(add(t, k, granted(30*time.Second), o), old.Add(at), 30*time.Second)
			time.Sleep(10 * time.Microsecond)
		}
		k.mu.Lock()
		n := len(k.schedule.dates)
		k.mu.Unlock()
		if n > 10 {
			t.Errorf("%d batches", n)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := len(o.renewed); n != 1000 {
			t.Errorf("%d of 1000 holds are renewed", n)
		}
	})
}
