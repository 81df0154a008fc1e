package memory

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A hold is left to expire. What was sent about it before, and comes later, does not prolong it.
func TestExpiringHoldIsNotProlonged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(nil)
		h, err := b.Acquire(t.Context(), request("x", 1))
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Expire(t.Context(), h, time.Second); err != nil {
			t.Fatal(err)
		}
		_ = b.Reenter(t.Context(), h, 1, 1)
		b.Renew(t.Context(), []*backend.Hold{h}, func(*backend.Hold, error) {})
		time.Sleep(time.Second)
		next := request("x", 2)
		next.Wait = false
		if _, err := b.Acquire(t.Context(), next); err != nil {
			t.Errorf("when it has expired: %v", err)
		}
	})
}
