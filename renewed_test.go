package dlock_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
)

// A granting is a server that keeps each hold for that long, whatever is asked of it. With
// zero it keeps a hold for as long as its holder lives.
type granting struct {
	*memory.Backend
	lease time.Duration
}

func (g granting) Acquire(ctx context.Context, r backend.Request) (*backend.Hold, error) {
	h, err := g.Backend.Acquire(ctx, r)
	if err == nil {
		h.Granted = g.lease
	}
	return h, err
}

func (g granting) Renew(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	g.Backend.Renew(ctx, holds, func(h *backend.Hold, err error) {
		if err == nil {
			h.Granted = g.lease
		}
		report(h, err)
	})
}

// What is left at a renewal is measured against the lease that the server has granted: not
// against a TTL that it has not, nor against the longest hold that the program allows. A
// renewal in time never looks late.
func TestRenewalsTellOfTheLease(t *testing.T) {
	for name, on := range map[string]struct {
		lease  time.Duration
		option dlock.Option
	}{
		"AsAsked":         {30 * time.Second, dlock.WithTTL(30 * time.Second)},
		"ServerGivesLess": {6 * time.Second, dlock.WithTTL(30 * time.Second)},
		"NoLease":         {0, dlock.WithTTL(30 * time.Second)},
		"MaxHold":         {30 * time.Second, dlock.WithMaxHold(62 * time.Second)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log lineLog
				renewed, failed := make(chan dlock.RenewedEvent, 1000), make(chan dlock.RenewalFailedEvent, 1000)
				b := memory.New(nil)
				c := client(t, granting{b, on.lease}, dlock.Options{Logger: log.logger(), Hooks: dlock.Hooks{
					Renewed:       func(e dlock.RenewedEvent) { renewed <- e },
					RenewalFailed: func(e dlock.RenewalFailedEvent) { failed <- e },
				}})
				defer runtime.KeepAlive(lock(t, c.Mutex("x", on.option)))
				time.Sleep(61 * time.Second)
				synctest.Wait()
				if len(renewed) < 5 {
					t.Fatalf("%d renewals", len(renewed))
				}
				for len(renewed) > 0 {
					e := <-renewed
					if e.TTL != on.lease || e.Left < on.lease/2 || e.Left > on.lease {
						t.Errorf("%v of %v were left, want about two thirds of %v", e.Left, e.TTL, on.lease)
					}
				}
				if text := log.String(); text != "" {
					t.Errorf("when all was well it was logged: %s", text)
				}
				b.Cut()
				defer b.Heal()
				time.Sleep(500 * time.Millisecond)
				synctest.Wait()
				for len(failed) > 0 {
					if e := <-failed; e.TTL != on.lease || e.Left > on.lease {
						t.Errorf("%v of %v are left, of a lease of %v", e.Left, e.TTL, on.lease)
					}
				}
			})
		})
	}
}
