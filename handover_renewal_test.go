package dlock

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
