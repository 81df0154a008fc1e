package quorum

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// errNotOpen is why a node does not answer to which there is no connection yet.
var errNotOpen = errors.New("not connected yet")

// A lateNode is a node that is opened in the background until it answers.
// Meanwhile it is unavailable.
type lateNode struct {
	stop context.CancelFunc
	done chan struct{} // closed when nobody opens it any more

	mu   sync.Mutex
	node backend.Backend // nil: not open
}

var (
	_ backend.Renewer    = (*lateNode)(nil)
	_ backend.Reenterer  = (*lateNode)(nil)
	_ backend.Downgrader = (*lateNode)(nil)
	_ backend.Expirer    = (*lateNode)(nil)
)

// beginOpen opens a node, and again until that succeeds. The first outcome goes
// to first.
func beginOpen(ctx context.Context, cfg backend.Config, first chan<- error) *lateNode {
	l := &lateNode{done: make(chan struct{})}
	ctx, l.stop = context.WithCancel(context.WithoutCancel(ctx))
	params := cfg.URL.Params
	go func() {
		defer close(l.done)
		var once sync.Once
		backend.Retry(ctx, func(ctx context.Context) error {
			again := *cfg.URL // opening takes the parameters
			again.Params = params.Clone()
			one := cfg
			one.URL = &again
			b, err := backend.Open(ctx, one)
			if err == nil {
				l.mu.Lock()
				l.node = b
				l.mu.Unlock()
			}
			once.Do(func() { first <- err })
			return err
		})
	}()
	return l
}

// opened is the node, nil if there is none yet.
func (l *lateNode) opened() backend.Backend {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.node
}

// as returns the node as what else it is.
func as[T any](l *lateNode) (t T, err error) {
	b := l.opened()
	if b == nil {
		return t, backend.Fail(backend.ErrUnavailable, errNotOpen)
	}
	t, ok := b.(T)
	if !ok {
		return t, backend.ErrUnsupported
	}
	return t, nil
}

// Acquire implements backend.Backend.
func (l *lateNode) Acquire(ctx context.Context, r backend.Request) (*backend.Hold, error) {
	b, err := as[backend.Backend](l)
	if err != nil {
		return nil, err
	}
	return b.Acquire(ctx, r)
}

// Vote implements backend.TokenRegister.
func (l *lateNode) Vote(ctx context.Context, r backend.Request, v backend.Ballot) (*backend.Hold, error) {
	b, err := as[backend.TokenRegister](l)
	if err != nil {
		return nil, err
	}
	return b.Vote(ctx, r, v)
}

// RaiseToken implements backend.TokenRegister.
func (l *lateNode) RaiseToken(ctx context.Context, h *backend.Hold, token uint64) error {
	b, err := as[backend.TokenRegister](l)
	if err != nil {
		return err
	}
	return b.RaiseToken(ctx, h, token)
}

// Release implements backend.Backend.
func (l *lateNode) Release(ctx context.Context, h *backend.Hold) error {
	b, err := as[backend.Backend](l)
	if err != nil {
		return err
	}
	return b.Release(ctx, h)
}

// Renew implements backend.Renewer.
func (l *lateNode) Renew(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	b, err := as[backend.Renewer](l)
	if err == nil {
		b.Renew(ctx, holds, report)
		return
	}
	for _, h := range holds {
		report(h, err)
	}
}

// Reenter implements backend.Reenterer.
func (l *lateNode) Reenter(ctx context.Context, h *backend.Hold, entries int, seq int64) error {
	b, err := as[backend.Reenterer](l)
	if err != nil {
		return err
	}
	return b.Reenter(ctx, h, entries, seq)
}

// Downgrade implements backend.Downgrader.
func (l *lateNode) Downgrade(ctx context.Context, h *backend.Hold) error {
	b, err := as[backend.Downgrader](l)
	if err != nil {
		return err
	}
	return b.Downgrade(ctx, h)
}

// Expire implements backend.Expirer.
func (l *lateNode) Expire(ctx context.Context, h *backend.Hold, d time.Duration) error {
	b, err := as[backend.Expirer](l)
	if err != nil {
		return err
	}
	return b.Expire(ctx, h, d)
}

// Ping implements pinger. A node that cannot be asked is taken to be there.
func (l *lateNode) Ping(ctx context.Context) error {
	p, err := as[pinger](l)
	switch {
	case err == nil:
		return p.Ping(ctx)
	case errors.Is(err, backend.ErrUnsupported):
		return nil
	}
	return err
}

// Close implements backend.Backend.
func (l *lateNode) Close(ctx context.Context) error {
	l.stop()
	<-l.done
	if b := l.opened(); b != nil {
		return b.Close(ctx)
	}
	return nil
}
