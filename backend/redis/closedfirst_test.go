package redis

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/server"
)

// TestClosedFirst has a program close its own go-redis client before the client of this library. No
// call hangs, each says so, and Close names the locks that the server keeps until their TTL is over.
func TestClosedFirst(t *testing.T) {
	t.Parallel()
	ctx, s := within(t), server.Start(t, server.Redis{})
	own := redis.NewClient(&redis.Options{Addr: s.Addr(), DisableIdentity: true})
	c := must[*dlock.Client](t)(dlock.New(New(own, nil), &dlock.Options{TTL: 20 * time.Second}))
	unlocked := must[*dlock.Lease](t)(c.Mutex("unlocked").Lock(ctx))
	must[*dlock.Lease](t)(c.Mutex("held").Lock(ctx))
	must[*dlock.Lease](t)(c.RWMutex("read").RLock(ctx))
	must[any](t)(nil, own.Close())
	began := time.Now()
	if _, err := c.Mutex("another").Lock(ctx); !errors.Is(err, dlock.ErrClosed) {
		t.Errorf("Lock: %v", err)
	}
	term := func(context.Context, *dlock.Lease) error { return nil }
	if err := dlock.Lead(ctx, c.Mutex("lead"), term); !errors.Is(err, dlock.ErrClosed) {
		t.Errorf("Lead: %v", err)
	}
	if err := unlocked.Unlock(ctx); !errors.Is(err, dlock.ErrClosed) {
		t.Errorf("Unlock: %v", err)
	}
	err := c.Close(context.Background())
	if !errors.Is(err, dlock.ErrUnavailable) {
		t.Fatalf("Close: %v", err)
	}
	for _, name := range []string{"unlocked", "held", "read"} {
		if !strings.Contains(err.Error(), `"`+name+`"`) {
			t.Errorf("Close does not name %s: %v", name, err)
		}
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("all that has taken %v", took)
	}
}

// TestCloseOfABackendWithoutConnections has the backend itself say so of a hold that it still knows.
func TestCloseOfABackendWithoutConnections(t *testing.T) {
	t.Parallel()
	ctx, s := within(t), server.Start(t, server.Redis{})
	own := redis.NewClient(&redis.Options{Addr: s.Addr(), DisableIdentity: true})
	b := New(own, nil)
	must[*backend.Hold](t)(b.Acquire(ctx, backend.Request{Name: "held", TTL: 20 * time.Second}))
	must[any](t)(nil, own.Close())
	if err := b.Close(ctx); !errors.Is(err, backend.ErrUnavailable) || !strings.Contains(err.Error(), `"held"`) {
		t.Errorf("Close: %v", err)
	}
}
