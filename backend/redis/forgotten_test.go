package redis

import (
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/server"
)

// TestKnownLimitForgottenHold shows what a client believes that has not noticed
// yet that the server has lost its data: it passes a hold on between its own
// goroutines that somebody else has had since. The next renewal says so, and
// the token is smaller than that of the other, so that a store refuses it.
func TestKnownLimitForgottenHold(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	s := server.Start(t, server.Redis{})
	c := openClient(t, s, &dlock.Options{TTL: 15 * time.Second})
	must[any](t)(nil, must[*dlock.Lease](t)(c.Mutex("job").Lock(ctx)).Unlock(ctx))
	subscribed(t, s, 1) // a client that cannot be told passes nothing on for long
	first := must[*dlock.Lease](t)(c.Mutex("job").Lock(ctx))
	passed := make(chan *dlock.Lease, 1)
	go func() {
		l, err := c.Mutex("job").Lock(ctx)
		if err != nil {
			t.Error(err)
		}
		passed <- l
	}()
	<-first.Wanted()

	must[string](t)(plainClient(t, s).FlushAll(ctx).Result())
	other := must[*dlock.Lease](t)(openClient(t, s, nil).Mutex("job").Lock(ctx))
	must[any](t)(nil, first.Unlock(ctx))
	second := <-passed
	if second.Token() <= first.Token() {
		t.Errorf("token %d after %d", second.Token(), first.Token())
	}
	if second.Token() >= other.Token() {
		t.Errorf("token %d, and somebody else has %d since", second.Token(), other.Token())
	}
	<-second.Done()
	if !errors.Is(second.Err(), dlock.ErrLost) {
		t.Error(second.Err())
	}
	if other.Err() != nil {
		t.Error(other.Err())
	}
	must[any](t)(nil, other.Unlock(ctx))
}
