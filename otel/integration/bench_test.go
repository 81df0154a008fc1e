package integration

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend/memory"
	"github.com/dlock-go/dlock/internal/server"
	dlockotel "github.com/dlock-go/dlock/otel"
)

// BenchmarkLockUnlock takes and releases a free lock without hooks, with metrics, and with
// metrics and spans that are all recorded and go nowhere.
func BenchmarkLockUnlock(b *testing.B) {
	for _, on := range []struct {
		name string
		open func(*testing.B, *dlock.Options) (*dlock.Client, error)
	}{
		{"memory", func(_ *testing.B, o *dlock.Options) (*dlock.Client, error) { return dlock.New(memory.New(nil), o) }},
		{"redis", func(b *testing.B, o *dlock.Options) (*dlock.Client, error) {
			return dlock.Open(b.Context(), "redis://"+server.Start(b, server.Redis{}).Addr(), o)
		}},
	} {
		metrics, _ := meters()
		spans := trace.NewTracerProvider(trace.WithSpanProcessor(newSpanCount()))
		both, _ := meters(dlockotel.WithTracerProvider(spans))
		for _, with := range []struct {
			name  string
			hooks dlock.Hooks
		}{{"none", dlock.Hooks{}}, {"metrics", metrics}, {"spans", both}} {
			b.Run(on.name+"/"+with.name, func(b *testing.B) {
				c, err := on.open(b, &dlock.Options{Hooks: with.hooks})
				must(b, err)
				b.Cleanup(func() { _ = c.Close(context.Background()) })
				m := c.Mutex("bench")
				b.ReportAllocs()
				for b.Loop() {
					lease, err := m.Lock(b.Context())
					must(b, err)
					must(b, lease.Unlock(b.Context()))
				}
			})
		}
	}
}
