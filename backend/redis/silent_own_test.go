package redis

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/faultnet"
)

// TestQuestionsOnAClientOfOnesOwn asks a server that does not answer, on a client that waits for a
// reply for longer than ctx lasts: each question ends with its context.
func TestQuestionsOnAClientOfOnesOwn(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(context.Context, *Backend) error{
		"Inspect": func(ctx context.Context, b *Backend) error { _, err := b.Inspect(ctx, "x"); return err },
		"Break":   func(ctx context.Context, b *Backend) error { return b.Break(ctx, "x", 1) },
		"Examine": func(ctx context.Context, b *Backend) error { return b.Examine(ctx, func(backend.Finding) {}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := proxied(t)
			c := redis.NewClient(&redis.Options{Addr: proxy.Addr(), DisableIdentity: true, ReadTimeout: 2 * limit})
			t.Cleanup(func() { _ = c.Close() })
			b := New(c, nil)
			must[string](t)(b.Ping(within(t)))
			proxy.Blackhole(faultnet.ToClient)
			ctx, cancel := context.WithTimeout(within(t), limit/100)
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- ask(ctx, b) }()
			select {
			case err := <-done:
				is(t, err, backend.ErrUnavailable)
			case <-time.After(limit / 8):
				t.Error("it goes on, though its context has ended")
			}
			proxy.Restore(faultnet.BothWays)
			must[any](t)(nil, b.Close(within(t)))
		})
	}
}
