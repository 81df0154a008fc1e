package redis

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
)

func TestExclusion(t *testing.T) {
	ctx := within(t)
	var all sync.WaitGroup
	counter, last := 0, uint64(0)
	for range 8 {
		m := openClient(t, shared, nil).Mutex(t.Name())
		all.Go(func() {
			for range 200 {
				l, err := m.Lock(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				counter++
				if l.Token() <= last {
					t.Errorf("token %d after %d", l.Token(), last)
				}
				last = l.Token()
				if err := l.Unlock(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if counter != 1600 {
		t.Errorf("%d of 1600", counter)
	}
}

func TestUnfitClients(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"shard": shared.Addr()}})
	t.Cleanup(func() { _ = ring.Close() })
	for name, unfit := range map[string]redis.UniversalClient{"ring": ring, "none": nil} {
		t.Run(name, func(t *testing.T) {
			c := must[*dlock.Client](t)(dlock.New(New(unfit, nil), nil))
			m := c.RWMutex(t.Name())
			for _, try := range []func(context.Context) (*dlock.Lease, error){m.Lock, m.TryLock, m.RLock} {
				if _, err := try(within(t)); !errors.Is(err, dlock.ErrInvalidConfig) {
					t.Error(err)
				}
			}
			must[any](t)(nil, c.Close(within(t)))
		})
	}
}

func TestReadersShare(t *testing.T) {
	ctx := within(t)
	a, b := openClient(t, shared, nil).RWMutex(t.Name()), openClient(t, shared, nil).RWMutex(t.Name())
	w := must[*dlock.Lease](t)(a.Lock(ctx))
	var all sync.WaitGroup
	leases := make(chan *dlock.Lease, 2)
	for _, m := range []*dlock.RWMutex{a, b} {
		all.Go(func() { leases <- must[*dlock.Lease](t)(m.RLock(ctx)) })
	}
	if err := w.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	one, two := <-leases, <-leases
	if one.Token() != two.Token() || one.Token() <= w.Token() {
		t.Errorf("tokens %d, %d after %d", one.Token(), two.Token(), w.Token())
	}
	for _, l := range []*dlock.Lease{one, two} {
		if err := l.Unlock(ctx); err != nil {
			t.Error(err)
		}
	}
}
