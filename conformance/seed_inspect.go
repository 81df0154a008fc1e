package conformance

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// snapshot plants a change of what Inspect returns.
func snapshot(change func(*backend.Snapshot)) func(*Harness) func(*Peer) {
	return layered(func(backend.Backend) Layer {
		return Layer{Inspect: func(ctx context.Context, name string, next InspectFunc) (backend.Snapshot, error) {
			s, err := next(ctx, name)
			change(&s)
			return s, err
		}}
	})
}

func unlabel(parties []backend.Party) {
	for i := range parties {
		parties[i].Label = ""
	}
}

// inspectFromCache says that any client holds a lock that one has held.
func inspectFromCache(h *Harness) func(*Peer) {
	var held sync.Map // by name
	return layered(func(backend.Backend) Layer {
		return Layer{
			Acquire: func(ctx context.Context, r backend.Request, next AcquireFunc) (*backend.Hold, error) {
				h, err := next(ctx, r)
				if err == nil {
					held.Store(r.Name, backend.Party{Mode: r.Mode, Label: r.Label, Entries: 1, Token: h.Token})
				}
				return h, err
			},
			Inspect: func(ctx context.Context, name string, next InspectFunc) (backend.Snapshot, error) {
				if p, ok := held.Load(name); ok {
					return backend.Snapshot{Holders: []backend.Party{p.(backend.Party)}}, nil
				}
				return next(ctx, name)
			},
		}
	})(h)
}

func inspectTakes(b backend.Backend) Layer {
	var n atomic.Uint64
	return Layer{Inspect: func(ctx context.Context, name string, next InspectFunc) (backend.Snapshot, error) {
		s, err := next(ctx, name)
		r := backend.Request{Name: name, ID: backend.ID{Client: identity(), Seq: n.Add(1)}, Mode: backend.Exclusive, TTL: time.Minute, Observer: deaf{}}
		_, _ = b.Acquire(ctx, r)
		return s, err
	}}
}

// inspectRenews enters once more whatever hold of the name any client has, which renews it.
func inspectRenews(h *Harness) func(*Peer) {
	var renew sync.Map // how to, by name
	var n atomic.Int64
	return layered(func(b backend.Backend) Layer {
		return Layer{
			Acquire: func(ctx context.Context, r backend.Request, next AcquireFunc) (*backend.Hold, error) {
				h, err := next(ctx, r)
				if err == nil {
					renew.Store(r.Name, func() { _ = b.(backend.Reenterer).Reenter(ctx, h, int(n.Add(1)), n.Load()) })
				}
				return h, err
			},
			Inspect: func(ctx context.Context, name string, next InspectFunc) (backend.Snapshot, error) {
				if f, ok := renew.Load(name); ok {
					f.(func())()
				}
				return next(ctx, name)
			},
		}
	})(h)
}

func inspectTellsAll(h *Harness) func(*Peer) {
	var ids sync.Map // the last request's for each name
	return layered(func(backend.Backend) Layer {
		return Layer{
			Acquire: func(ctx context.Context, r backend.Request, next AcquireFunc) (*backend.Hold, error) {
				ids.Store(r.Name, r.ID)
				return next(ctx, r)
			},
			Inspect: func(ctx context.Context, name string, next InspectFunc) (backend.Snapshot, error) {
				s, err := next(ctx, name)
				for i := range s.Holders {
					if id, ok := ids.Load(name); ok {
						s.Holders[i].Client = fmt.Sprint(id)
					}
				}
				return s, err
			},
		}
	})(h)
}

// inspectPiecemeal has the lock change hands between the two parts of an answer.
func inspectPiecemeal(backend.Backend) Layer {
	return Layer{Inspect: func(ctx context.Context, name string, next InspectFunc) (backend.Snapshot, error) {
		before, err := next(ctx, name)
		if err != nil || len(before.Waiters) == 0 {
			return before, err
		}
		backend.Sleep(ctx, 20*time.Millisecond)
		s, err := next(ctx, name)
		s.Waiters = before.Waiters
		return s, err
	}}
}

func namesFirstPage(backend.Backend) Layer {
	return Layer{Names: func(ctx context.Context, prefix string, next NamesFunc) iter.Seq2[string, error] {
		return func(yield func(string, error) bool) {
			n := 0
			for name, err := range next(ctx, prefix) {
				if n++; n > 500 || !yield(name, err) {
					return
				}
			}
		}
	}}
}

func breakAnyToken(b backend.Backend) Layer {
	return Layer{Break: func(ctx context.Context, name string, token uint64, next BreakFunc) error {
		s, err := b.(backend.Inspector).Inspect(ctx, name)
		if err == nil && len(s.Holders) > 0 {
			token = s.Holders[0].Token
		}
		return next(ctx, name, token)
	}}
}

// A reticent observer hears of a loss without its cause.
type reticent struct{ backend.Observer }

func (r reticent) Lost(error) { r.Observer.Lost(errors.New("the hold is gone")) }

func breakUnsaid(backend.Backend) Layer {
	return Layer{
		Acquire: func(ctx context.Context, r backend.Request, next AcquireFunc) (*backend.Hold, error) {
			r.Observer = reticent{r.Observer}
			return next(ctx, r)
		},
		Renew: func(ctx context.Context, holds []*backend.Hold, report ReportFunc, next RenewFunc) {
			next(ctx, holds, func(h *backend.Hold, err error) {
				if errors.Is(err, backend.ErrLost) {
					err = backend.ErrLost
				}
				report(h, err)
			})
		},
	}
}

// breakKeepsToken gives the token of a broken hold to the next of any client.
func breakKeepsToken(h *Harness) func(*Peer) {
	var broken sync.Map // the token last broken of each name
	return layered(func(backend.Backend) Layer {
		return Layer{
			Break: func(ctx context.Context, name string, token uint64, next BreakFunc) error {
				err := next(ctx, name, token)
				if err == nil {
					broken.Store(name, token)
				}
				return err
			},
			Acquire: func(ctx context.Context, r backend.Request, next AcquireFunc) (*backend.Hold, error) {
				h, err := next(ctx, r)
				if old, ok := broken.LoadAndDelete(r.Name); ok && err == nil {
					h.Token = old.(uint64)
				}
				return h, err
			},
		}
	})(h)
}

func pingFromCache(backend.Backend) Layer {
	var version atomic.Pointer[string]
	return Layer{Ping: func(ctx context.Context, next PingFunc) (string, error) {
		if v := version.Load(); v != nil {
			return *v, nil
		}
		v, err := next(ctx)
		if err == nil {
			version.Store(&v)
		}
		return v, err
	}}
}
