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

// renewFunc answers for each hold.
type renewFunc func(ctx context.Context, h *backend.Hold) error

func (f renewFunc) Renew(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	var all sync.WaitGroup
	for _, h := range holds {
		all.Go(func() { report(h, f(ctx, h)) })
	}
	all.Wait()
}

// extend proves h as of now.
func extend(_ context.Context, h *backend.Hold) error {
	h.Sent, h.Granted = time.Now(), h.TTL
	return nil
}

type owner struct {
	lost    chan error
	renewed chan time.Duration
	failed  chan failure
}

// A failure is an attempt to renew that had no success.
type failure struct {
	left  time.Duration
	cause error
}

func newKeeper(r backend.Renewer) *Keeper {
	return New(r, func(lost []Loss) {
		for _, l := range lost {
			if o, ok := l.Owner.(*owner); ok {
				o.lost <- l.Cause
			}
		}
	})
}

func newOwner() *owner {
	return &owner{make(chan error, 10), make(chan time.Duration, 1000), make(chan failure, 1000)}
}

func (o *owner) End(error) bool { return true }

func (o *owner) Renewed(l Lease) { o.renewed <- l.Left }

func (o *owner) RenewalFailed(l Lease, cause error) {
	select {
	case o.failed <- failure{l.Left, cause}:
	default:
	}
}

func granted(ttl time.Duration) *backend.Hold {
	return &backend.Hold{Request: backend.Request{TTL: ttl}, Sent: time.Now(), Granted: ttl}
}

func add(t *testing.T, k *Keeper, h *backend.Hold, o Owner) *Item {
	t.Helper()
	it := &Item{Hold: h}
	if !k.Add(it, 0, o) {
		t.Fatal("not added")
	}
	return it
}

func TestRenewsAtAThird(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, o := newKeeper(renewFunc(extend)), newOwner()
		defer k.Close()
		add(t, k, granted(30*time.Second), o)
		start := time.Now()
		for i := range 3 {
			<-o.renewed
			if at, want := time.Since(start), time.Duration(i+1)*10*time.Second; at > want || at < want-2*time.Second {
				t.Errorf("renewal %d after %v, want %v or a little less", i, at, want)
			}
		}
	})
}

func TestFirstRenewalWhenTheHoldSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, o := newKeeper(renewFunc(extend)), newOwner()
		defer k.Close()
		h := granted(5 * time.Second)
		h.TTL, h.RenewIn = 30*time.Second, 100*time.Millisecond
		start := time.Now()
		add(t, k, h, o)
		<-o.renewed
		if at := time.Since(start); at > 100*time.Millisecond {
			t.Errorf("renewed after %v", at)
		}
		<-o.renewed
		if at := time.Since(start); at < 8*time.Second {
			t.Errorf("renewed again after %v", at)
		}
	})
}

// A grant that has to be confirmed is asked for again in time where that was lost, and another hold of the
// same TTL was renewed at the same moment.
func TestLostConfirmationIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lost atomic.Pointer[backend.Hold]
		k, o := newKeeper(renewFunc(func(ctx context.Context, h *backend.Hold) error {
			if lost.CompareAndSwap(h, nil) {
				<-ctx.Done()
				return backend.ErrUnavailable
			}
			return extend(ctx, h)
		})), newOwner()
		defer k.Close()
		start := time.Now()
		h := granted(5 * time.Second)
		h.TTL, h.RenewIn = 30*time.Second, 100*time.Millisecond
		lost.Store(h)
		other := granted(30 * time.Second)
		other.RenewIn = 100 * time.Millisecond
		add(t, k, other, newOwner())
		add(t, k, h, o)
		select {
		case <-o.renewed:
			if took := h.Sent.Sub(start); took > 3*time.Second {
				t.Errorf("repeated after %v", took)
			}
		case err := <-o.lost:
			t.Error(err)
		}
	})
}

// A hold that is to be renewed soon does not share the batch of one whose time for
// that has passed.
func TestFirstRenewalIsNotOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, o := newKeeper(renewFunc(extend)), newOwner()
		defer k.Close()
		soon := func() *Item {
			h := granted(time.Minute)
			h.TTL, h.RenewIn = time.Minute, 100*time.Millisecond
			return add(t, k, h, o)
		}
		k.Remove(t.Context(), soon())
		time.Sleep(500 * time.Millisecond)
		start := time.Now()
		soon()
		<-o.renewed
		if at := time.Since(start); at < 50*time.Millisecond || at > 100*time.Millisecond {
			t.Errorf("renewed after %v", at)
		}
	})
}

// A hold whose first renewal is due before it is added, since its grant took long to be
// heard of, shares no batch: the deadline of an earlier one may have passed.
func TestFirstRenewalIsDueAlready(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, o := newKeeper(renewFunc(extend)), newOwner()
		defer k.Close()
		h := granted(time.Second)
		h.TTL = time.Second
		k.Remove(t.Context(), add(t, k, h, newOwner()))
		time.Sleep(2 * time.Second)
		h = granted(time.Second)
		h.TTL, h.Sent, h.RenewIn = time.Second, time.Now().Add(-200*time.Millisecond), 100*time.Millisecond
		it := add(t, k, h, o)
		if err := k.Expired(it); err != nil {
			t.Fatal(err)
		}
		<-o.renewed
	})
}

// Where a session is the lease, as on ZooKeeper, it may be far longer than the TTL. A
// server that does not answer is asked as often as the lease needs.
func TestTriesGoByTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, ttl := range []time.Duration{100 * time.Millisecond, time.Second, 5 * time.Minute} {
			var tries atomic.Int32
			k := newKeeper(renewFunc(func(context.Context, *backend.Hold) error {
				tries.Add(1)
				return backend.ErrUnavailable
			}))
			h := granted(30 * time.Second)
			h.TTL = ttl
			add(t, k, h, newOwner())
			time.Sleep(20 * time.Second) // the first renewal is due after 10
			if n := tries.Load(); n < 3 || n > 15 {
				t.Errorf("%d tries in 10 s with a TTL of %v and a lease of 30 s", n, ttl)
			}
			k.Close()
		}
	})
}

// A hold of fixed length is renewed only if the server granted less.
func TestFixedHold(t *testing.T) {
	for lease, want := range map[time.Duration]int{time.Minute: 0, 10 * time.Second: 10} {
		synctest.Test(t, func(t *testing.T) {
			k, o := newKeeper(renewFunc(func(_ context.Context, h *backend.Hold) error {
				h.Sent, h.Granted = time.Now(), lease
				return nil
			})), newOwner()
			defer k.Close()
			h := granted(35 * time.Second)
			h.Fixed, h.Granted = true, lease
			if !k.Add(&Item{Hold: h}, 30*time.Second, o) {
				t.Fatal("not added")
			}
			start := time.Now()
			<-o.lost
			if n := len(o.renewed); n != want && n != want-1 {
				t.Errorf("renewed %d times with a lease of %v, want %d", n, lease, want)
			}
			if lasted := time.Since(start); lasted != 30*time.Second {
				t.Errorf("lasted %v, want 30s", lasted)
			}
		})
	}
}

// The server's word that a hold is gone ends it at once; any other error does
// not before its time.
func TestErrorsOfARenewal(t *testing.T) {
	for answer, want := range map[error]time.Duration{
		backend.ErrLost:         10 * time.Second,
		errors.New("no answer"): 29 * time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			k, o := newKeeper(renewFunc(func(context.Context, *backend.Hold) error { return answer })), newOwner()
			defer k.Close()
			add(t, k, granted(30*time.Second), o)
			start := time.Now()
			<-o.lost
			if at := time.Since(start); at > want || at < want-2*time.Second {
				t.Errorf("%v: lost after %v, want %v", answer, at, want)
			}
		})
	}
}

// A hold without a lease is checked, and never runs out by itself.
func TestHoldWithoutALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gone atomic.Bool
		k, o := newKeeper(renewFunc(func(context.Context, *backend.Hold) error {
			if gone.Load() {
				return backend.ErrLost
			}
			return errors.New("no answer")
		})), newOwner()
		defer k.Close()
		h := granted(30 * time.Second)
		h.Granted = 0
		it := add(t, k, h, o)
		time.Sleep(time.Hour)
		if len(o.lost) > 0 || k.Expired(it) != nil {
			t.Error("lost")
		}
		gone.Store(true)
		<-o.lost
	})
}

// A renewal that hangs delays no other.
func TestLateAnswerDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := granted(30 * time.Second)
		k := newKeeper(renewFunc(func(ctx context.Context, h *backend.Hold) error {
			if h == stuck {
				<-ctx.Done()
				return ctx.Err()
			}
			return extend(ctx, h)
		}))
		defer k.Close()
		late, fine := newOwner(), newOwner()
		add(t, k, stuck, late)
		add(t, k, granted(30*time.Second), fine)
		start := time.Now()
		<-late.lost
		if at := time.Since(start); at != 29*time.Second {
			t.Errorf("lost after %v, want 29s", at)
		}
		if len(fine.renewed) < 2 || len(fine.lost) > 0 {
			t.Error("the other was not renewed")
		}
	})
}

// An answer that comes after the deadline does not bring the hold back, on a
// machine too busy to have said that it is over.
func TestLateAnswerRevivesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k *Keeper
		o := newOwner()
		k = newKeeper(renewFunc(func(_ context.Context, h *backend.Hold) error {
			for range 120 { // a minute in which the keeper sees no deadline pass
				k.mu.Lock()
				k.timer.Stop()
				k.mu.Unlock()
				time.Sleep(500 * time.Millisecond)
			}
			h.Sent, h.Granted = time.Now(), h.TTL // whatever the limit of the attempt was
			return nil
		}))
		defer k.Close()
		add(t, k, granted(30*time.Second), o)
		time.Sleep(2 * time.Minute)
		if len(o.lost) != 1 || len(o.renewed) > 0 {
			t.Errorf("lost %d times and renewed %d times after its end, want lost once", len(o.lost), len(o.renewed))
		}
	})
}

// When Remove has returned, no renewal is under way.
func TestRemoveWaitsForTheRenewalUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		k, o := newKeeper(renewFunc(func(ctx context.Context, h *backend.Hold) error {
			<-answer
			return extend(ctx, h)
		})), newOwner()
		defer k.Close()
		it := add(t, k, granted(30*time.Second), o)
		time.Sleep(11 * time.Second)
		removed := make(chan struct{})
		go func() {
			if !k.Remove(context.Background(), it) {
				t.Error("not removed")
			}
			close(removed)
		}()
		synctest.Wait()
		select {
		case <-removed:
			t.Error("removed with a renewal under way")
		default:
		}
		close(answer)
		<-removed
		if len(o.renewed)+len(o.lost) > 0 {
			t.Error("the owner was told after Remove")
		}
	})
}

func TestRemoveEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(renewFunc(func(ctx context.Context, _ *backend.Hold) error {
			<-ctx.Done()
			return ctx.Err()
		}))
		defer k.Close()
		it := add(t, k, granted(time.Hour), newOwner())
		time.Sleep(21 * time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if k.Remove(ctx, it) {
			t.Error("removed with a renewal under way")
		}
		if took := time.Since(start); took != time.Second {
			t.Errorf("removed after %v", took)
		}
	})
}

func TestAddRefusesWhatIsOver(t *testing.T) {
	k := newKeeper(nil)
	h := granted(time.Second)
	h.Sent = time.Now().Add(-time.Second)
	if k.Add(&Item{Hold: h}, 0, newOwner()) {
		t.Error("a hold without time left was added")
	}
	k.Close()
	if k.Add(&Item{Hold: granted(time.Second)}, 0, newOwner()) {
		t.Error("a closed keeper took a hold")
	}
}

// What the server has granted for less than no time is over, and not without a lease.
func TestNothingWasGranted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, o := newKeeper(renewFunc(func(_ context.Context, h *backend.Hold) error {
			h.Sent, h.Granted = time.Now(), -time.Millisecond
			return nil
		})), newOwner()
		defer k.Close()
		h := granted(30 * time.Second)
		h.Granted = -time.Millisecond
		if k.Add(&Item{Hold: h}, 0, o) {
			t.Error("a hold that was over when it was granted was added")
		}
		add(t, k, granted(30*time.Second), o)
		time.Sleep(15 * time.Second)
		if len(o.lost) == 0 {
			t.Error("a hold that was over when it was renewed goes on")
		}
	})
}

// The wall clock alone passes a deadline: the monotonic one may have stopped.
func TestDeadlineByTheWallClock(t *testing.T) {
	c := newClock()
	h := granted(time.Minute)
	d := c.deadline(h)
	before, after := c.instant(h.Sent.Add(58*time.Second)), c.instant(h.Sent.Add(59*time.Second))
	if d.passed(before) || !d.passed(instant{after.at, before.wall}) || !d.passed(instant{before.at, after.wall}) {
		t.Error("a deadline passes when either clock has passed it")
	}
	h.Granted = 0
	d = c.deadline(h)
	if d.passed(c.instant(h.Sent.Add(10_000 * time.Hour))) {
		t.Error("a hold without a lease ran out")
	}
}
