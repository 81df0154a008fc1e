package conformance

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// Seeds returns the bugs that can be put before any backend.
func Seeds() []Seed {
	return []Seed{
		{Name: "waiter-left", Trap: "a waiter whose context has ended stays in the queue",
			Property: "Context/CancelledWaiterIsGone", Says: "nobody waits", plant: layered(waiterLeft)},
		{Name: "grant-left", Trap: "a grant that came when the context ended stays",
			Property: "Context/CancelledGrantIsGone", Says: "left with its grant", plant: layered(grantLeft)},
		{Name: "sent-on-arrival", Trap: "a hold counts from when the answer came",
			Property: "Sent/Acquire", Says: "after the server had answered", plant: layered(sentOnArrival)},
		{Name: "granted-on-arrival", Trap: "the hold of who had to wait counts from when that was heard",
			Property: "Sent/Grant", Says: "after the server had answered", plant: layered(grantedOnArrival)},
		{Name: "renewed-on-arrival", Trap: "a renewed hold counts from when the answer came", Needs: []string{"Renewer"},
			Property: "Sent/Renewal", Says: "after the server had answered", plant: layered(renewedOnArrival)},
		{Name: "late-grant", Trap: "a grant is believed however late it is heard of",
			Property: "Wait/LateGrant", Says: "is believed beside", plant: believing(func(backend.Request) bool { return true })},
		{Name: "late-fixed-grant", Trap: "a grant that is never renewed is believed however late it is heard of",
			Property: "Wait/LateGrant", Says: "is believed beside", plant: believing(func(r backend.Request) bool { return r.Fixed })},
		{Name: "held-from-cache", Trap: "a lock was held a moment ago, and so it is said to be held",
			Property: "TryLock/LeavesNothing", Says: "lock is held", plant: layered(heldFromCache)},
		{Name: "alive-from-cache", Trap: "a renewal is answered from what is remembered", Needs: []string{"Renewer"},
			Property: "Loss/KeyGone", Says: "lost after it was taken away", plant: layered(aliveFromCache)},
		{Name: "renewal-takes-anew", Trap: "a renewal takes a lock that is gone anew", Needs: []string{"Renewer"},
			Property: "Loss/KeyGone", Says: "lost after it was taken away", plant: layered(renewalTakesAnew)},
		{Name: "evicted-early", Trap: "the server ends a hold after 70 % of its lease",
			Property: "Keep/WholeLease", Says: "while the lease lasts", plant: layered(evictedEarly)},
		{Name: "try-queues", Trap: "a failed try leaves a request in the queue",
			Property: "TryLock/LeavesNothing", Says: "left somebody waiting|never: 1 waiting|lock is held", plant: layered(tryQueues)},
		{Name: "silence-is-held", Trap: "a server that does not answer is taken for a lock that is held",
			Property: "Context/CancelWhileUnanswered", Says: "failed with", plant: layered(silenceIsHeld)},
		{Name: "release-later", Trap: "a release returns before the server knows of it",
			Property: "Unlock/OtherGoroutine", Says: "lock is held", plant: layered(releaseLater)},
		{Name: "release-by-name", Trap: "a late release ends whatever hold of the name there is",
			Property: "Unlock/ReleasedAgain", Says: "want one that is", plant: layered(releaseByName)},
		{Name: "release-of-nothing", Trap: "the release of a hold that is over says that all was well",
			Property: "Unlock/SaysLost", Says: "says that all was well", plant: layered(releaseOfNothing)},
		{Name: "wanted-untold", Trap: "a holder never hears that somebody waits",
			Property: "Wait/Wanted", Says: "told that somebody waits", plant: layered(wantedUntold)},
		{Name: "names-folded", Trap: "two names share a key",
			Property: "Exclusion/NamesIndependent", Says: "is taken with the names before it", plant: layered(namesFolded)},
		{Name: "token-restarts", Trap: "tokens begin anew after the server has lost its data",
			Property: "Token/GrowsAcrossDataLoss", Says: "came after", plant: tokenRestarts},
		{Name: "reader-with-old-token", Trap: "a reader gets the token of the writer before it",
			Property: "Token/ReadersAgainstLastWriter", Says: "came after the writer's", plant: readerWithOldToken},
		{Name: "downgrade-with-old-token", Trap: "a downgrade does not tell the token that the hold was passed on with",
			Needs:    []string{"Downgrader", "Transferer"},
			Property: "Token/ReadersAfterDowngrade", Says: "came after the writer's", plant: downgradeWithOldToken},
		{Name: "downgrade-with-a-gap", Trap: "a downgrade releases the lock and takes it again", Needs: []string{"Downgrader"},
			Property: "RW/DowngradeAgainstQueuedWriter", Says: "lock was lost|lock is held", plant: layered(downgradeWithAGap)},
		{Name: "inspect-holder-hidden", Trap: "a lock that is held is said to be free", Needs: []string{"Inspector"},
			Property: "Inspect/Holder", Says: "does not show its holder", plant: snapshot(func(n *backend.Snapshot) { n.Holders = nil })},
		{Name: "inspect-waiter-missing", Trap: "the last who waits is not told of", Needs: []string{"Inspector"},
			Property: "Inspect/Waiters", Says: "in this order", plant: snapshot(func(n *backend.Snapshot) { n.Waiters = n.Waiters[:max(0, len(n.Waiters)-1)] })},
		{Name: "inspect-waiter-unlabelled", Trap: "who waits is told of without the label", Needs: []string{"Inspector"},
			Property: "Inspect/Waiters", Says: "in this order", plant: snapshot(func(n *backend.Snapshot) { unlabel(n.Waiters) })},
		{Name: "inspect-readers-unlabelled", Trap: "of readers only the first is told of with the label", Needs: []string{"Inspector"},
			Property: "Inspect/Readers", Says: "does not show three readers", plant: snapshot(func(n *backend.Snapshot) { unlabel(n.Holders[min(1, len(n.Holders)):]) })},
		{Name: "inspect-reader-as-writer", Trap: "a reader is said to be a writer", Needs: []string{"Inspector"},
			Property: "Inspect/Readers", Says: "does not show two readers", plant: snapshot(func(n *backend.Snapshot) {
				for i := range n.Holders {
					n.Holders[i].Mode = backend.Exclusive
				}
			})},
		{Name: "inspect-from-cache", Trap: "who held the lock once is said to hold it still", Needs: []string{"Inspector"},
			Property: "Inspect/Lost", Says: "does not show a free lock", plant: inspectFromCache},
		{Name: "inspect-takes", Trap: "looking at a lock takes it", Needs: []string{"Inspector"},
			Property: "Inspect/LeavesNothing", Says: "left something", plant: layered(inspectTakes)},
		{Name: "inspect-tells-all", Trap: "what is told of a holder has the number of its request", Needs: []string{"Inspector"},
			Property: "Inspect/NoSecrets", Says: "more of a client than who it is", plant: inspectTellsAll},
		{Name: "inspect-renews", Trap: "looking at a lock renews it", Needs: []string{"Inspector", "Reenterer"},
			Property: "Inspect/OnlyReads", Says: "changes what the server has", plant: inspectRenews},
		{Name: "inspect-piecemeal", Trap: "who holds a lock is read after who waits for it", Needs: []string{"Inspector"},
			Property: "Inspect/InUse", Says: "told of twice", plant: layered(inspectPiecemeal)},
		{Name: "names-first-page", Trap: "the list of names ends with its first page", Needs: []string{"Inspector"},
			Property: "Inspect/Names", Says: "is not in the list", plant: layered(namesFirstPage)},
		{Name: "break-any-token", Trap: "a hold is broken whatever token is given", Needs: []string{"Breaker", "Inspector"},
			Property: "Break/Holder", Says: "not its own", plant: layered(breakAnyToken)},
		{Name: "break-unsaid", Trap: "a holder hears that it has lost the lock, and not that it was taken away", Needs: []string{"Breaker"},
			Property: "Break/Holder", Says: "want one that is dlock: taken away by Break", plant: layered(breakUnsaid)},
		{Name: "break-keeps-token", Trap: "who comes after a broken hold gets its token", Needs: []string{"Breaker"},
			Property: "Break/Races", Says: "granted twice|came after", plant: breakKeepsToken},
		{Name: "ping-from-cache", Trap: "a server that answered once is said to answer", Needs: []string{"Pinger"},
			Property: "Ping/Answers", Says: "cannot be reached answered", plant: layered(pingFromCache)},
	}
}

// layered plants a layer of its own before each client.
func layered(layer func(b backend.Backend) Layer) func(*Harness) func(*Peer) {
	return func(*Harness) func(*Peer) {
		return func(p *Peer) { p.Backend = Wrap(p.Backend, layer(p.Backend)) }
	}
}

// An outcome is what a call of Acquire returned.
type outcome struct {
	h   *backend.Hold
	err error
}

// leaving calls next on a context that does not end with the caller's.
func leaving(ctx context.Context, r backend.Request, next AcquireFunc) (<-chan outcome, context.CancelFunc) {
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan outcome, 1)
	go func() {
		h, err := next(inner, r)
		done <- outcome{h, err}
	}()
	return done, cancel
}

func waiterLeft(backend.Backend) Layer {
	return Layer{Acquire: func(ctx context.Context, r backend.Request, next AcquireFunc) (*backend.Hold, error) {
		done, _ := leaving(ctx, r, next)
		select {
		case o := <-done:
			return o.h, o.err
		case <-ctx.Done():
			return nil, backend.WaitEnded(ctx, true)
		}
	}}
}

func grantLeft(backend.Backend) Layer {
	return Layer{Acquire: func(ctx context.Context, r backend.Request, next AcquireFunc) (*backend.Hold, error) {
		done, cancel := leaving(ctx, r, next)
		select {
		case o := <-done:
			return o.h, o.err
		case <-ctx.Done():
		}
		select {
		case <-done:
		case <-time.After(100 * time.Millisecond):
		}
		cancel()
		return nil, backend.WaitEnded(ctx, true)
	}}
}

func sentOnArrival(backend.Backend) Layer {
	return Layer{Acquire: func(ctx context.Context, r backend.Request, next AcquireFunc) (*backend.Hold, error) {
		h, err := next(ctx, r)
		if err == nil {
			h.Sent = time.Now()
		}
		return h, err
	}}
}

// A waited notes whether a request was told to wait.
type waited struct {
	backend.Observer
	queued atomic.Bool
}

func (w *waited) Queued() {
	w.queued.Store(true)
	w.Observer.Queued()
}

func grantedOnArrival(backend.Backend) Layer {
	return Layer{Acquire: func(ctx context.Context, r backend.Request, next AcquireFunc) (*backend.Hold, error) {
		w := &waited{Observer: r.Observer}
		r.Observer = w
		h, err := next(ctx, r)
		if err == nil && w.queued.Load() {
			h.Sent = time.Now()
		}
		return h, err
	}}
}

func renewedOnArrival(backend.Backend) Layer {
	return Layer{Renew: func(ctx context.Context, holds []*backend.Hold, report ReportFunc, next RenewFunc) {
		next(ctx, holds, func(h *backend.Hold, err error) {
			if err == nil {
				h.Sent = time.Now()
			}
			report(h, err)
		})
	}}
}

// believing holds back grants instead of the harness, and takes them for new when
// they come.
func believing(which func(backend.Request) bool) func(*Harness) func(*Peer) {
	return func(*Harness) func(*Peer) {
		return func(p *Peer) {
			if p.Delay == nil {
				return
			}
			var delay atomic.Int64
			p.Delay = func(d time.Duration) { delay.Store(int64(d)) }
			p.Backend = Wrap(p.Backend, Layer{
				Acquire: func(ctx context.Context, r backend.Request, next AcquireFunc) (*backend.Hold, error) {
					h, err := next(ctx, r)
					late := time.Duration(delay.Load())
					switch {
					case err != nil || !r.Wait || late == 0 || !backend.Sleep(ctx, late):
						return h, err
					case which(r):
						h.Sent = time.Now()
						return h, nil
					}
					_ = p.Backend.Release(ctx, h)
					return nil, backend.Fail(backend.ErrUnavailable, errors.New("the grant came too late"))
				},
			})
		}
	}
}

func heldFromCache(backend.Backend) Layer {
	var mu sync.Mutex
	held := make(map[string]time.Time) // until when it is remembered
	return Layer{Acquire: func(ctx context.Context, r backend.Request, next AcquireFunc) (*backend.Hold, error) {
		mu.Lock()
		defer mu.Unlock()
		if r.Wait {
			mu.Unlock()
			defer mu.Lock()
			return next(ctx, r)
		}
		if time.Now().Before(held[r.Name]) {
			held[r.Name] = time.Now().Add(r.TTL)
			return nil, backend.ErrHeld
		}
		h, err := next(ctx, r)
		if errors.Is(err, backend.ErrHeld) {
			held[r.Name] = time.Now().Add(r.TTL)
		}
		return h, err
	}}
}

// A deafened observer does not hear of some events.
type deafened struct {
	backend.Observer
	lost, wanted bool
}

func (d deafened) Lost(cause error) {
	if !d.lost {
		d.Observer.Lost(cause)
	}
}

func (d deafened) Wanted() {
	if !d.wanted {
		d.Observer.Wanted()
	}
}

// unheard is an Acquire whose caller never hears of a loss.
func unheard(ctx context.Context, r backend.Request, next AcquireFunc) (*backend.Hold, error) {
	r.Observer = deafened{Observer: r.Observer, lost: true}
	return next(ctx, r)
}

func aliveFromCache(backend.Backend) Layer {
	return Layer{
		Acquire: unheard,
		Renew: func(_ context.Context, holds []*backend.Hold, report ReportFunc, _ RenewFunc) {
			for _, h := range holds {
				h.Sent = time.Now()
				report(h, nil)
			}
		},
	}
}

func renewalTakesAnew(b backend.Backend) Layer {
	var anew atomic.Uint64
	return Layer{
		Acquire: unheard,
		Renew: func(ctx context.Context, holds []*backend.Hold, report ReportFunc, next RenewFunc) {
			next(ctx, holds, func(h *backend.Hold, err error) {
				if errors.Is(err, backend.ErrLost) {
					r := h.Request
					r.Wait, r.ID.Seq = false, r.ID.Seq+anew.Add(1)<<32
					var again *backend.Hold
					if again, err = b.Acquire(ctx, r); err == nil {
						again.Index = h.Index
						*h = *again
					}
				}
				report(h, err)
			})
		},
	}
}

func evictedEarly(b backend.Backend) Layer {
	return Layer{Acquire: func(ctx context.Context, r backend.Request, next AcquireFunc) (*backend.Hold, error) {
		h, err := next(ctx, r)
		if err == nil && r.Fixed {
			doomed := *h
			time.AfterFunc(r.TTL*7/10, func() { _ = b.Release(context.Background(), &doomed) })
		}
		return h, err
	}}
}

func tryQueues(backend.Backend) Layer {
	return Layer{Acquire: func(ctx context.Context, r backend.Request, next AcquireFunc) (*backend.Hold, error) {
		h, err := next(ctx, r)
		if !r.Wait && errors.Is(err, backend.ErrHeld) {
			left := r
			left.Wait, left.ID.Seq = true, r.ID.Seq+1<<32
			leaving(ctx, left, next)
		}
		return h, err
	}}
}

func silenceIsHeld(backend.Backend) Layer {
	return Layer{Acquire: func(ctx context.Context, r backend.Request, next AcquireFunc) (*backend.Hold, error) {
		h, err := next(ctx, r)
		if errors.Is(err, backend.ErrUnavailable) {
			err = backend.WaitEnded(ctx, true)
		}
		return h, err
	}}
}

func releaseLater(backend.Backend) Layer {
	return Layer{Release: func(ctx context.Context, h *backend.Hold, next HoldFunc) error {
		given := *h
		time.AfterFunc(given.TTL/4, func() { _ = next(context.WithoutCancel(ctx), &given) })
		return nil
	}}
}

func releaseByName(backend.Backend) Layer {
	var latest sync.Map // of each name
	return Layer{
		Acquire: func(ctx context.Context, r backend.Request, next AcquireFunc) (*backend.Hold, error) {
			h, err := next(ctx, r)
			if err == nil {
				latest.Store(r.Name, h)
			}
			return h, err
		},
		Release: func(ctx context.Context, h *backend.Hold, next HoldFunc) error {
			if last, ok := latest.Load(h.Name); ok {
				h = last.(*backend.Hold)
			}
			return next(ctx, h)
		},
	}
}

func releaseOfNothing(backend.Backend) Layer {
	return Layer{Release: func(ctx context.Context, h *backend.Hold, next HoldFunc) error {
		if err := next(ctx, h); !errors.Is(err, backend.ErrLost) {
			return err
		}
		return nil
	}}
}

func wantedUntold(backend.Backend) Layer {
	return Layer{Acquire: func(ctx context.Context, r backend.Request, next AcquireFunc) (*backend.Hold, error) {
		r.Observer = deafened{Observer: r.Observer, wanted: true}
		return next(ctx, r)
	}}
}

func namesFolded(backend.Backend) Layer {
	return Layer{Acquire: func(ctx context.Context, r backend.Request, next AcquireFunc) (*backend.Hold, error) {
		r.Name = strings.ToLower(r.Name)
		return next(ctx, r)
	}}
}

// tokenRestarts counts from one once the server has been wiped.
func tokenRestarts(h *Harness) func(*Peer) {
	var wiped atomic.Bool
	var last atomic.Uint64
	if wipe := h.Wipe; wipe != nil {
		h.Wipe = func(t testing.TB) { wipe(t); wiped.Store(true) }
	}
	return layered(func(backend.Backend) Layer {
		return Layer{Acquire: func(ctx context.Context, r backend.Request, next AcquireFunc) (*backend.Hold, error) {
			h, err := next(ctx, r)
			if err == nil && wiped.Load() {
				h.Token = last.Add(1)
			}
			return h, err
		}}
	})(h)
}

// readerWithOldToken remembers what the last writer of any client got.
func readerWithOldToken(h *Harness) func(*Peer) {
	var writers sync.Map // the last token of each name
	return layered(func(backend.Backend) Layer {
		return Layer{Acquire: func(ctx context.Context, r backend.Request, next AcquireFunc) (*backend.Hold, error) {
			h, err := next(ctx, r)
			if err != nil {
				return nil, err
			}
			if r.Mode == backend.Exclusive {
				writers.Store(r.Name, h.Token)
			} else if last, ok := writers.Load(r.Name); ok {
				h.Token = last.(uint64)
			}
			return h, nil
		}}
	})(h)
}

// downgradeWithOldToken lets readers in with the token that the hold was granted
// with, whatever it was passed on with.
func downgradeWithOldToken(h *Harness) func(*Peer) {
	var granted, told sync.Map // the token that each hold began with; what readers of each name get
	return layered(func(backend.Backend) Layer {
		return Layer{
			Acquire: func(ctx context.Context, r backend.Request, next AcquireFunc) (*backend.Hold, error) {
				h, err := next(ctx, r)
				if old, ok := told.Load(r.Name); ok && err == nil && r.Mode == backend.Shared {
					h.Token = old.(uint64)
				}
				return h, err
			},
			Transfer: func(h *backend.Hold, next TransferFunc) (uint64, bool) {
				granted.LoadOrStore(h, h.Token)
				return next(h)
			},
			Downgrade: func(ctx context.Context, h *backend.Hold, next HoldFunc) error {
				if first, ok := granted.Load(h); ok {
					told.Store(h.Name, first)
				}
				return next(ctx, h)
			},
		}
	})(h)
}

func downgradeWithAGap(b backend.Backend) Layer {
	return Layer{Downgrade: func(ctx context.Context, h *backend.Hold, _ HoldFunc) error {
		if err := b.Release(ctx, h); err != nil {
			return err
		}
		r := h.Request
		r.Mode, r.ID.Seq, r.Wait = backend.Shared, r.ID.Seq+1<<32, false
		again, err := b.Acquire(ctx, r)
		if err != nil {
			return backend.ErrLost
		}
		*h = *again
		return nil
	}}
}
