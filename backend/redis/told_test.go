package redis

import (
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/renewal"
)

// A client that no message reaches loses a lock. Whichever request finds that out ends the lease at
// once, and not the one that asks alone.
func TestLossIsToldByWhateverFindsIt(t *testing.T) {
	t.Parallel()
	for name, find := range map[string]func(*testing.T, *dlock.Mutex, *dlock.Lease) error{
		"entry": func(t *testing.T, m *dlock.Mutex, l *dlock.Lease) error {
			_, err := m.Lock(l.Context(within(t)))
			return err
		},
		"downgrade": func(t *testing.T, _ *dlock.Mutex, l *dlock.Lease) error { return l.Downgrade(within(t)) },
		"renewal": func(t *testing.T, _ *dlock.Mutex, l *dlock.Lease) error {
			<-l.Done()
			if errors.Is(l.Err(), renewal.ErrNoAnswer) {
				t.Error("the lease has run out")
			}
			return l.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := within(t)
			ttl := time.Hour
			if name == "renewal" {
				ttl = 3 * time.Second
			}
			c := openURL(t, "redis://"+shared.Addr()+"?dlock.wake=poll", &dlock.Options{TTL: ttl})
			m := c.Mutex(t.Name())
			l := must[*dlock.Lease](t)(m.Lock(ctx))
			must[int64](t)(plainClient(t, shared).Del(ctx, mainKey(t.Name())).Result())
			is(t, find(t, m, l), dlock.ErrLost)
			is(t, l.Err(), dlock.ErrLost)
			select {
			case <-l.Done():
			default:
				t.Error("the lease goes on")
			}
		})
	}
}
