package dlock

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
	"github.com/dlock-go/dlock/internal/renewal"
)

// A hold may be renewed at the very moment at which it is passed on: whoever is
// next has its lease all the same.
func TestHandOverDuringRenewals(t *testing.T) {
	c, err := New(memory.New(memory.NewServer()), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var held atomic.Pointer[hold]
	stop := make(chan struct{})
	var renewals, owners sync.WaitGroup
	renewals.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if h := held.Load(); h != nil {
				h.Renewed(renewal.Lease{})
			}
		}
	})
	for range 4 {
		owners.Go(func() {
			for range 1000 {
				lease, err := c.Mutex("x").Lock(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				held.Store(lease.of.(*entry).hold)
				if err := lease.Unlock(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	owners.Wait()
	close(stop)
	renewals.Wait()
	if err := c.Close(ctx); err != nil {
		t.Error(err)
	}
}

// Where a renewal tells that somebody waits, who gets a lock that was passed on is not told so before.
func TestHandOverIsNotWantedByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(late{memory.New(memory.NewServer())}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close(t.Context()) }()
		first, err := c.Mutex("x").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan *Lease, 1)
		go func() {
			lease, _ := c.Mutex("x").Lock(t.Context())
			got <- lease
		}()
		synctest.Wait()
		if err := first.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		second := <-got
		if second.Token() != first.Token()+1 {
			t.Fatal("the lock was not passed on")
		}
		wanted := second.Wanted()
		select {
		case <-wanted:
			t.Error("wanted, though nobody waits")
		default:
		}
		second.of.(*entry).hold.Wanted()
		<-wanted
		if err := second.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A late backend tells with a renewal that somebody waits.
type late struct{ *memory.Backend }

func (b late) Acquire(ctx context.Context, r backend.Request) (*backend.Hold, error) {
	h, err := b.Backend.Acquire(ctx, r)
	if err == nil {
		h.WantedAtOnce = false
	}
	return h, err
}
