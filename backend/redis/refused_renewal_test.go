package redis

import (
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
)

// TestRefusedRenewalIsNoLoss has a server refuse a renewal for a reason that passes. The hold is there, and
// is renewed by the next attempt.
func TestRefusedRenewalIsNoLoss(t *testing.T) {
	for _, said := range []string{
		"LOADING Redis is loading the dataset in memory",
		"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
		"READONLY You can't write against a read only replica.",
		"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
		"NOREPLICAS Not enough good replicas to write.",
	} {
		word, _, _ := strings.Cut(said, " ")
		t.Run(word, func(t *testing.T) {
			ctx := within(t)
			b := newBackend(t, plainClient(t, shared), nil)
			h := must[*backend.Hold](t)(b.Acquire(ctx, requestOf(t, "holder", backend.Exclusive)))
			c := redis.NewClient(&redis.Options{
				Addr:       liar(t, shared.Addr(), strings.ToLower(mainKey(h.Name)), "-"+said+"\r\n"),
				MaxRetries: -1, DisableIdentity: true,
			})
			t.Cleanup(func() { _ = c.Close() })
			renew := func(b *Backend) (err error) {
				b.Renew(ctx, []*backend.Hold{h}, func(_ *backend.Hold, e error) { err = e })
				return err
			}
			if err := renew(newBackend(t, c, nil)); !errors.Is(err, backend.ErrUnavailable) || errors.Is(err, backend.ErrLost) {
				t.Errorf("refused: %v", err)
			}
			must[any](t)(nil, renew(b))
			must[any](t)(nil, b.Release(ctx, h))
		})
	}
}
