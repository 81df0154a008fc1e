package conformance

import (
	"context"
	"iter"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A Layer stands between package dlock and a backend. Each function is called in
// place of the method of its name and gets that as next; one that is nil passes
// the call on. They may be called concurrently.
type Layer struct {
	Acquire   func(ctx context.Context, r backend.Request, next AcquireFunc) (*backend.Hold, error)
	Release   func(ctx context.Context, h *backend.Hold, next HoldFunc) error
	Renew     func(ctx context.Context, holds []*backend.Hold, report ReportFunc, next RenewFunc)
	Reenter   func(ctx context.Context, h *backend.Hold, next HoldFunc) error
	Downgrade func(ctx context.Context, h *backend.Hold, next HoldFunc) error
	Transfer  func(h *backend.Hold, next TransferFunc) (uint64, bool)
	Expire    func(ctx context.Context, h *backend.Hold, next HoldFunc) error
	Inspect   func(ctx context.Context, name string, next InspectFunc) (backend.Snapshot, error)
	Names     func(ctx context.Context, prefix string, next NamesFunc) iter.Seq2[string, error]
	Break     func(ctx context.Context, name string, token uint64, next BreakFunc) error
	Ping      func(ctx context.Context, next PingFunc) (version string, err error)
	Close     func(ctx context.Context, next func(context.Context) error) error
}

// The methods of a backend, as a Layer calls them.
type (
	AcquireFunc  = func(context.Context, backend.Request) (*backend.Hold, error)
	HoldFunc     = func(context.Context, *backend.Hold) error
	ReportFunc   = func(*backend.Hold, error)
	RenewFunc    = func(context.Context, []*backend.Hold, ReportFunc)
	TransferFunc = func(*backend.Hold) (uint64, bool)
	InspectFunc  = func(context.Context, string) (backend.Snapshot, error)
	NamesFunc    = func(context.Context, string) iter.Seq2[string, error]
	BreakFunc    = func(context.Context, string, uint64) error
	PingFunc     = func(context.Context) (string, error)
)

// Wrap returns b behind a layer. It is a Renewer, Downgrader and Expirer where b
// is, for the same times, and no TokenRegister. What else b lacks it does without: it counts no
// entries, transfers nothing, releases one by one, and reports ErrUnsupported if it is
// asked who holds a lock.
func Wrap(b backend.Backend, l Layer) backend.Backend {
	w := &wrapped{b, l}
	_, renews := b.(backend.Renewer)
	_, downgrades := b.(backend.Downgrader)
	_, expires := b.(backend.Expirer)
	r, d, e := wrappedRenewer{w}, wrappedDowngrader{w}, wrappedExpirer{w}
	switch {
	case renews && downgrades && expires:
		return struct {
			*wrapped
			wrappedRenewer
			wrappedDowngrader
			wrappedExpirer
		}{w, r, d, e}
	case renews && downgrades:
		return struct {
			*wrapped
			wrappedRenewer
			wrappedDowngrader
		}{w, r, d}
	case renews && expires:
		return struct {
			*wrapped
			wrappedRenewer
			wrappedExpirer
		}{w, r, e}
	case downgrades && expires:
		return struct {
			*wrapped
			wrappedDowngrader
			wrappedExpirer
		}{w, d, e}
	case renews:
		return struct {
			*wrapped
			wrappedRenewer
		}{w, r}
	case downgrades:
		return struct {
			*wrapped
			wrappedDowngrader
		}{w, d}
	case expires:
		return struct {
			*wrapped
			wrappedExpirer
		}{w, e}
	}
	return w
}

// A wrapped backend has the methods that can do without.
type wrapped struct {
	b     backend.Backend
	layer Layer
}

type (
	wrappedRenewer    struct{ of *wrapped }
	wrappedDowngrader struct{ of *wrapped }
	wrappedExpirer    struct{ of *wrapped }
)

// Acquire implements backend.Backend.
func (w *wrapped) Acquire(ctx context.Context, r backend.Request) (*backend.Hold, error) {
	if w.layer.Acquire == nil {
		return w.b.Acquire(ctx, r)
	}
	return w.layer.Acquire(ctx, r, w.b.Acquire)
}

// Release implements backend.Backend.
func (w *wrapped) Release(ctx context.Context, h *backend.Hold) error {
	return through(ctx, h, w.layer.Release, w.b.Release)
}

// Close implements backend.Backend.
func (w *wrapped) Close(ctx context.Context) error {
	if w.layer.Close == nil {
		return w.b.Close(ctx)
	}
	return w.layer.Close(ctx, w.b.Close)
}

// ReleaseAll implements backend.BatchReleaser.
func (w *wrapped) ReleaseAll(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	if all, ok := w.b.(backend.BatchReleaser); ok && w.layer.Release == nil {
		all.ReleaseAll(ctx, holds, report)
		return
	}
	const atOnce = 64
	slots := make(chan struct{}, atOnce)
	var under sync.WaitGroup
	for _, h := range holds {
		slots <- struct{}{}
		under.Go(func() {
			report(h, w.Release(ctx, h))
			<-slots
		})
	}
	under.Wait()
}

// Reenter implements backend.Reenterer.
func (w *wrapped) Reenter(ctx context.Context, h *backend.Hold, entries int, seq int64) error {
	b, ok := w.b.(backend.Reenterer)
	if !ok {
		return nil
	}
	return through(ctx, h, w.layer.Reenter, func(ctx context.Context, h *backend.Hold) error {
		return b.Reenter(ctx, h, entries, seq)
	})
}

// Transfer implements backend.Transferer.
func (w *wrapped) Transfer(h *backend.Hold) (uint64, bool) {
	b, ok := w.b.(backend.Transferer)
	if !ok {
		return 0, false
	}
	if w.layer.Transfer == nil {
		return b.Transfer(h)
	}
	return w.layer.Transfer(h, b.Transfer)
}

// MinTTL implements backend.MinTTLer.
func (w *wrapped) MinTTL() time.Duration {
	if b, ok := w.b.(backend.MinTTLer); ok {
		return b.MinTTL()
	}
	return backend.MinTTL
}

// Inspect implements backend.Inspector.
func (w *wrapped) Inspect(ctx context.Context, name string) (backend.Snapshot, error) {
	b, ok := w.b.(backend.Inspector)
	switch {
	case !ok:
		return backend.Snapshot{}, backend.ErrUnsupported
	case w.layer.Inspect == nil:
		return b.Inspect(ctx, name)
	}
	return w.layer.Inspect(ctx, name, b.Inspect)
}

// Names implements backend.Inspector.
func (w *wrapped) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	b, ok := w.b.(backend.Inspector)
	switch {
	case !ok:
		return func(yield func(string, error) bool) { yield("", backend.ErrUnsupported) }
	case w.layer.Names == nil:
		return b.Names(ctx, prefix)
	}
	return w.layer.Names(ctx, prefix, b.Names)
}

// Break implements backend.Breaker.
func (w *wrapped) Break(ctx context.Context, name string, token uint64) error {
	b, ok := w.b.(backend.Breaker)
	switch {
	case !ok:
		return backend.ErrUnsupported
	case w.layer.Break == nil:
		return b.Break(ctx, name, token)
	}
	return w.layer.Break(ctx, name, token, b.Break)
}

// Ping implements backend.Pinger.
func (w *wrapped) Ping(ctx context.Context) (string, error) {
	b, ok := w.b.(backend.Pinger)
	switch {
	case !ok:
		return "", backend.ErrUnsupported
	case w.layer.Ping == nil:
		return b.Ping(ctx)
	}
	return w.layer.Ping(ctx, b.Ping)
}

// Renew implements backend.Renewer.
func (w wrappedRenewer) Renew(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	next := w.of.b.(backend.Renewer).Renew
	if w.of.layer.Renew == nil {
		next(ctx, holds, report)
		return
	}
	w.of.layer.Renew(ctx, holds, report, next)
}

// Downgrade implements backend.Downgrader.
func (w wrappedDowngrader) Downgrade(ctx context.Context, h *backend.Hold) error {
	return through(ctx, h, w.of.layer.Downgrade, w.of.b.(backend.Downgrader).Downgrade)
}

// Expire implements backend.Expirer.
func (w wrappedExpirer) Expire(ctx context.Context, h *backend.Hold, d time.Duration) error {
	return through(ctx, h, w.of.layer.Expire, func(ctx context.Context, h *backend.Hold) error {
		return w.of.b.(backend.Expirer).Expire(ctx, h, d)
	})
}

// CanExpire reports for which times the backend behind w can do so.
func (w wrappedExpirer) CanExpire(d time.Duration) bool { return backend.CanExpire(w.of.b, d) }

// through calls next, by way of layer if there is one.
func through(ctx context.Context, h *backend.Hold, layer func(context.Context, *backend.Hold, HoldFunc) error, next HoldFunc) error {
	if layer == nil {
		return next(ctx, h)
	}
	return layer(ctx, h, next)
}
