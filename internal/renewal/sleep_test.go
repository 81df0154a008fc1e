package renewal

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// sleeper has the keeper's wall clock go on while the monotonic one stands still.
func sleeper(k *Keeper) (sleep func(time.Duration)) {
	var slept atomic.Int64
	k.clock.wall = func(t time.Time) int64 { return t.UnixNano() + slept.Load() }
	return func(d time.Duration) { slept.Add(int64(d)) }
}

// A machine that slept for longer than the lease ends its holds when it has been
// awake for a second, however long the lease is.
func TestHoldsEndSoonAfterWaking(t *testing.T) {
	for _, ttl := range []time.Duration{time.Second, 30 * time.Second, 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			k, o := newKeeper(renewFunc(func(context.Context, *backend.Hold) error { return errors.New("down") })), newOwner()
			sleep := sleeper(k)
			defer k.Close()
			add(t, k, granted(ttl), o)
			time.Sleep(ttl / 5)
			sleep(ttl)
			woken := time.Now()
			<-o.lost
			if late := time.Since(woken); late > time.Second {
				t.Errorf("a hold of %v ended %v after waking", ttl, late)
			}
		})
	}
}

// A machine that slept for less than the lease renews its holds when it has been
// awake for a second, or ends them when the lease is over by the wall clock.
func TestSleepShortensTheLease(t *testing.T) {
	for _, up := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			k, o := newKeeper(renewFunc(func(ctx context.Context, h *backend.Hold) error {
				if !up {
					return errors.New("down")
				}
				return extend(ctx, h)
			})), newOwner()
			sleep := sleeper(k)
			defer k.Close()
			add(t, k, granted(time.Hour), o)
			time.Sleep(time.Minute)
			sleep(50 * time.Minute)
			woken := time.Now()
			select {
			case <-o.renewed:
				if late := time.Since(woken); late > time.Second {
					t.Errorf("renewed %v after waking", late)
				}
			case <-o.lost:
				if after := time.Since(woken); up || after > 9*time.Minute || after < 8*time.Minute {
					t.Errorf("ended %v after waking", after)
				}
			}
		})
	}
}

// A wall clock that is set back makes no lease longer.
func TestWallClockSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, o := newKeeper(nil), newOwner()
		sleep := sleeper(k)
		defer k.Close()
		start := time.Now()
		add(t, k, granted(30*time.Second), o)
		time.Sleep(10 * time.Second)
		sleep(-time.Hour)
		<-o.lost
		if lasted := time.Since(start); lasted != 29*time.Second {
			t.Errorf("lasted %v, want 29s", lasted)
		}
	})
}

// What is left of a lease is told by both clocks from the moment on at which the machine wakes.
func TestLeftAfterWaking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, o := newKeeper(renewFunc(func(context.Context, *backend.Hold) error { return errors.New("down") })), newOwner()
		sleep := sleeper(k)
		defer k.Close()
		it := add(t, k, granted(time.Hour), o)
		before, _ := k.Left(it)
		sleep(20 * time.Minute)
		if after, _ := k.Left(it); after != before-20*time.Minute {
			t.Errorf("%v left before the machine slept for 20 minutes, and %v after", before, after)
		}
		if !k.HasThird(it) {
			t.Error("of an hour 40 minutes are left, and it has no third")
		}
		sleep(25 * time.Minute)
		if k.HasThird(it) {
			t.Error("of an hour 15 minutes are left, and it has a third")
		}
	})
}
