package etcd

import (
	"context"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/dlock-go/dlock/backend"
)

// TestCauseIsNoAnswer ends contexts because another lock was lost with its lease: no
// server has said so of this one.
func TestCauseIsNoAnswer(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(backend.Fail(backend.ErrLost, rpctypes.ErrLeaseNotFound))
	full := &Backend{slots: make(chan struct{})}
	_, noSlot := full.slot(ctx)
	asking := &login{state: make(chan loginState)}
	_, noToken := asking.token(ctx, nil)
	for what, err := range map[string]error{"a slot": noSlot, "a token": fail(noToken)} {
		if pair, ok := err.(interface{ Unwrap() []error }); !ok || pair.Unwrap()[0] != backend.ErrUnavailable {
			t.Errorf("a wait for %s ended with %v", what, err)
		}
	}
}
