package quorum_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
)

// A shaky is a distant node that loses requests and replies while it is bad.
type shaky struct {
	*distant
	bad *atomic.Int32 // the number of the node that is
	i   int32
}

// trouble lets what goes there or comes from there be late, or be lost.
func (d *shaky) lossy(do func() error) error {
	bad := d.bad.Load() == d.i
	d.travel()
	if bad && rand.N(3) == 0 {
		time.Sleep(rand.N(500 * time.Millisecond))
		return backend.ErrUnavailable
	}
	err := do()
	d.travel()
	if bad && rand.N(3) == 0 {
		time.Sleep(rand.N(500 * time.Millisecond))
		return backend.ErrUnavailable
	}
	return err
}

func (d *shaky) RaiseToken(ctx context.Context, h *backend.Hold, token uint64) error {
	return d.lossy(func() error { return d.Backend.RaiseToken(ctx, h, token) })
}

func (d *shaky) LowerToken(ctx context.Context, h *backend.Hold, token uint64) error {
	return d.lossy(func() error { return d.Backend.LowerToken(ctx, h, token) })
}

func (d *shaky) Release(ctx context.Context, h *backend.Hold) error {
	return d.lossy(func() error { return d.Backend.Release(ctx, h) })
}

func (d *shaky) Downgrade(ctx context.Context, h *backend.Hold) error {
	return d.lossy(func() error { return d.Backend.Downgrade(ctx, h) })
}

func (d *shaky) Reenter(ctx context.Context, h *backend.Hold, entries int, seq int64) error {
	return d.lossy(func() error { return d.Backend.Reenter(ctx, h, entries, seq) })
}

func (d *shaky) Vote(ctx context.Context, r backend.Request, b backend.Ballot) (h *backend.Hold, err error) {
	err = d.lossy(func() error {
		h, err = d.distant.Vote(ctx, r, b)
		return err
	})
	if err != nil && h != nil {
		_ = d.Backend.Release(context.Background(), h)
		h = nil
	}
	return h, err
}

func (d *shaky) Renew(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	for _, h := range holds {
		sent := time.Now()
		err := d.lossy(func() (err error) {
			d.Backend.Renew(ctx, []*backend.Hold{h}, func(_ *backend.Hold, e error) { err = e })
			return err
		})
		if err == nil {
			h.Sent = sent
		}
		report(h, err)
	}
}

// Writers and readers come and go, and one node at a time loses what is sent to it, and what it
// answers. No lease is lost for that.
func TestOneShakyNodeTakesNothingAway(t *testing.T) {
	const holds, clients = 200, 4
	for _, n := range []int{3, 5} {
		ripe(t, n, func(t *testing.T, s nodes) {
			var bad atomic.Int32
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var all, work sync.WaitGroup
			all.Go(func() {
				for ctx.Err() == nil {
					bad.Store(rand.Int32N(int32(n)))
					time.Sleep(ttl + rand.N(3*ttl))
					bad.Store(-1)
					time.Sleep(2 * ttl) // what it has not answered may be a part of it for a lease
				}
			})
			var mu sync.Mutex
			in := map[*dlock.Lease]bool{} // exclusive
			enter := func(l *dlock.Lease, exclusive bool) {
				mu.Lock()
				defer mu.Unlock()
				for o, x := range in {
					if (x || exclusive) && o.Err() == nil && l.Err() == nil {
						t.Errorf("two have the lock, with tokens %d and %d", o.Token(), l.Token())
					}
				}
				in[l] = exclusive
			}
			leave := func(l *dlock.Lease) {
				mu.Lock()
				defer mu.Unlock()
				delete(in, l)
			}
			for range clients {
				c := &client{t: t}
				nodes := make([]backend.Backend, n)
				for i := range s {
					d := &distant{Backend: memory.New(s[i])}
					d.trip.Store(int64(20 * time.Millisecond))
					d.jitter.Store(int64(30 * time.Millisecond))
					nodes[i] = &shaky{d, &bad, int32(i)}
				}
				c.Client = over(t, nodes, nil)
				m := c.RWMutex("x")
				work.Go(func() {
					for range holds / clients {
						shared := rand.N(3) == 0
						var l *dlock.Lease
						var err error
						if shared {
							l, err = m.RLock(t.Context())
						} else {
							l, err = m.Lock(t.Context())
						}
						ok(t, err)
						enter(l, !shared)
						time.Sleep(rand.N(ttl))
						if !shared && rand.N(2) == 0 {
							if inner, err := m.Lock(l.Context(t.Context())); err == nil {
								time.Sleep(rand.N(time.Second))
								_ = inner.Unlock(t.Context())
							} else {
								t.Logf("re-entry: %v", err)
							}
						}
						if !shared && rand.N(2) == 0 {
							mu.Lock()
							in[l] = false
							mu.Unlock()
							if err := l.Downgrade(t.Context()); err != nil {
								t.Logf("downgrade: %v", err)
							}
							time.Sleep(rand.N(ttl))
						}
						if err := l.Err(); err != nil {
							t.Errorf("lease: %v", err)
						}
						leave(l)
						if err := l.Unlock(t.Context()); err != nil {
							t.Errorf("unlock: %v", err)
						}
					}
				})
			}
			work.Wait()
			cancel()
			all.Wait()
			bad.Store(-1)
			time.Sleep(ttl)
			s.empty(t)
		})
	}
}
