package simulation

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/dlock-go/dlock"
)

// errPanicked stands for the panic of a hook.
var errPanicked = errors.New("a hook panicked")

// A listener is the hooks of one client: they count what they are told, take their
// time, or panic now and then.
type listener struct {
	mode    string // count, slow or panic
	renewed func(dlock.RenewedEvent)

	mu     sync.Mutex
	rnd    *rand.Rand
	calls  int // that have begun and not ended
	leases int // likewise
	last   dlock.AcquiredEvent
	lastAt time.Time // when it was told

	reg      *register       // nil: nobody judges what it is told
	index    int             // of its client
	closed   <-chan struct{} // when Close has been called
	prefix   string
	place    string // of all its leases
	hearings []*hearing
	leaseOf  map[uint64]*heard // by the number that hooks were told
	byLease  map[*dlock.Lease]*heard
	failures []time.Time // when a renewal had failed
	newest   *heard      // of which the call has returned
	closedIn string      // the hook that closes the client; empty: none
	closes   func()

	w     *world
	hangs *hanging   // when one does not return; nil: they do
	asks  []hookCall // that they have not made yet
	exits bool       // they end their goroutine and do not panic
}

// hookTime is how long a slow hook takes.
const hookTime = 5 * time.Millisecond

// listen returns the hooks of a client, and who counts for them.
func listen(mode string, seed uint64, renewed func(dlock.RenewedEvent)) (dlock.Hooks, *listener) {
	l := &listener{mode: mode, renewed: renewed, rnd: rand.New(rand.NewPCG(seed, 3))}
	if mode == "" {
		return dlock.Hooks{}, l
	}
	return dlock.Hooks{
		Acquiring: func(ctx context.Context, e dlock.AcquiringEvent) context.Context {
			l.heard(1, 0)
			ctx = l.acquiring(ctx, e)
			l.callsClient(ctx, "Acquiring")
			l.act(true, -1)
			return ctx
		},
		Waiting: func(ctx context.Context, e dlock.WaitingEvent) {
			l.waiting(ctx, e)
			l.callsClient(ctx, "Waiting")
			l.act(true, 0)
		},
		Acquired: func(ctx context.Context, e dlock.AcquiredEvent) {
			l.heard(-1, 1)
			l.got(e)
			l.hasAcquired(ctx, e)
			l.callsClient(ctx, "Acquired")
			l.act(true, 0)
		},
		NotAcquired: func(ctx context.Context, e dlock.NotAcquiredEvent) {
			l.heard(-1, 0)
			l.hasNotAcquired(ctx, e)
			l.callsClient(ctx, "NotAcquired")
			l.act(true, 0)
		},
		Renewed: func(e dlock.RenewedEvent) {
			l.renewed(e)
			l.hasRenewed(e)
			l.callsClient(context.Background(), "Renewed")
			l.act(false, 0)
		},
		RenewalFailed: func(e dlock.RenewalFailedEvent) {
			l.renewalFailed(e)
			l.callsClient(context.Background(), "RenewalFailed")
			l.act(false, 0)
		},
		Released: func(ctx context.Context, e dlock.ReleasedEvent) {
			l.heard(0, -1)
			l.released(ctx, e)
			l.callsClient(ctx, "Released")
			l.act(true, 0)
		},
		Lost: func(e dlock.LostEvent) {
			l.heard(0, -1)
			l.lost(e)
			l.callsClient(context.Background(), "Lost")
			l.endsAlone()
		},
		Closed: func(ctx context.Context, e dlock.ClosedEvent) {
			l.heard(0, -1)
			l.hasClosed(ctx, e)
			l.callsClient(ctx, "Closed")
			l.endsAlone()
		},
	}, l
}

func (l *listener) heard(calls, leases int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls += calls
	l.leases += leases
}

// act does what such a hook does. Some may panic: their caller hears of it, and no end of so many calls is
// heard of then.
func (l *listener) act(may bool, calls int) {
	switch l.mode {
	case "slow":
		time.Sleep(hookTime)
	case "panic":
		l.mu.Lock()
		panics := may && l.rnd.IntN(20) == 0
		l.mu.Unlock()
		if panics {
			l.heard(calls, 0)
			l.throws()
		}
	}
}

// counts are the calls and the leases that the hooks have not heard the end of.
func (l *listener) counts() (calls, leases int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls, l.leases
}

// survived runs f, and returns errPanicked if a hook panics in it.
func survived(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			if v != errPanicked {
				panic(v)
			}
			err = errPanicked
		}
	}()
	return f()
}
