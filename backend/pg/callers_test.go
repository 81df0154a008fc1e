package pg

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/faultnet"
)

// TestCallersTakeTurns has callers who come alone and together, some of whom
// give up: each of the others gets its answer.
func TestCallersTakeTurns(t *testing.T) {
	_, s := newSession(t)
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			for i := range 500 {
				ctx, cancel := context.WithCancel(testContext(t))
				hurried := w == 0 && i%2 == 0
				if hurried {
					go cancel()
				}
				c, err := s.do(ctx, ping, int64(s.pid))
				cancel()
				if !hurried && (err != nil || c.value != 1) {
					t.Errorf("ping: %v", err)
					return
				}
			}
		})
	}
	all.Wait()
}

// busy makes p a client that has lately waited for a lock and got it.
func busy(t testing.TB, p, holder *peer) {
	t.Helper()
	held := lock(t, holder.Mutex(nameOf(t)))
	next := queue(t, shared.Addr(), p, nameOf(t))
	unlock(t, held)
	unlock(t, receive(t, "the lock", next))
}

// TestCancelledCallers has callers give up on a server that says nothing, as one who tries and
// as one who waits.
func TestCancelledCallers(t *testing.T) {
	t.Parallel()
	const long = 10 * time.Minute
	for name, op := range map[string]func(*dlock.Mutex, context.Context) (*dlock.Lease, error){
		"try": (*dlock.Mutex).TryLock, "lock": (*dlock.Mutex).Lock,
	} {
		t.Run(name, func(t *testing.T) {
			holder, p := newPeer(t, shared.Addr(), Options{}, long), newPeer(t, shared.Addr(), Options{}, long)
			busy(t, p, holder)
			works(t, p.Mutex(nameOf(t)))
			p.proxy.Blackhole(faultnet.BothWays)
			ctx, cancel := context.WithTimeout(testContext(t), 50*time.Millisecond)
			defer cancel()
			failed := make(chan error, 1)
			go func() {
				_, err := op(p.Mutex(nameOf(t)), ctx)
				failed <- err
			}()
			if err := receive(t, "the end of the call", failed); !errors.Is(err, dlock.ErrUnavailable) {
				t.Errorf("%v", err)
			}
			must(t, p.proxy.Heal())
			works(t, holder.Mutex(nameOf(t)))
		})
	}
}

// TestCloseOfCallers closes a client one of whose callers waits for as long as it takes.
func TestCloseOfCallers(t *testing.T) {
	holder := newPeer(t, shared.Addr(), Options{}, time.Minute)
	p := newPeer(t, shared.Addr(), Options{Slice: time.Minute}, time.Minute)
	busy(t, p, holder)
	held := lock(t, holder.Mutex(nameOf(t)))
	failed := make(chan error, 1)
	go func() {
		_, err := p.backend.Acquire(context.Background(), requestFor(nameOf(t)))
		failed <- err
	}()
	a := admin(t, shared.Addr())
	eventually(t, "queued", func() bool { return inLocks(t, a, p.backend, nameOf(t), false) == 1 })
	ctx, cancel := context.WithTimeout(testContext(t), dialLimit*4/5)
	defer cancel()
	must(t, p.backend.Close(ctx))
	if ctx.Err() != nil {
		t.Error("the connection had to be broken")
	}
	if err := receive(t, "the end of the wait", failed); !errors.Is(err, dlock.ErrClosed) {
		t.Errorf("%v", err)
	}
	eventually(t, "nobody queued", func() bool { return inLocks(t, a, p.backend, nameOf(t), false) == 0 })
	unlock(t, held)
}

// TestCloseOfCallersOnASilentServer closes a client and, without a context that ends, a backend, one of
// whose callers has asked a server that says nothing.
func TestCloseOfCallersOnASilentServer(t *testing.T) {
	for name, close := range map[string]func(*peer) error{
		"client":  func(p *peer) error { return p.Client.Close(context.Background()) },
		"backend": func(p *peer) error { return p.backend.Close(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPeer(t, shared.Addr(), Options{}, time.Minute)
			works(t, p.Mutex(nameOf(t)))
			p.proxy.Blackhole(faultnet.BothWays)
			failed, closed := make(chan error, 1), make(chan error, 1)
			go func() {
				_, err := p.backend.Acquire(context.Background(), requestFor(nameOf(t)))
				failed <- err
			}()
			eventually(t, "a statement under way", p.backend.asks)
			begun := time.Now()
			go func() { closed <- close(p) }()
			if err := receive(t, "the end of the call", failed); !errors.Is(err, dlock.ErrClosed) {
				t.Errorf("the call: %v", err)
			}
			must(t, receive(t, "the end of Close", closed))
			if took := time.Since(begun); took > dialLimit+time.Second {
				t.Errorf("Close took %v", took)
			}
		})
	}
}

// asks reports whether a statement is under way.
func (b *Backend) asks() bool {
	return slices.ContainsFunc(b.alive(), func(s *session) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.inFlight) > 0
	})
}
