package integration

import (
	"context"
	"strings"
	"testing"

	"github.com/redis/go-redis/extra/redisotel/v9"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/dlock-go/dlock"
	lockredis "github.com/dlock-go/dlock/backend/redis"
	"github.com/dlock-go/dlock/internal/server"
	dlockotel "github.com/dlock-go/dlock/otel"
)

// TestRedisCommandsAreUnderOurSpans has redisotel trace the client that locks are on. The
// commands of a Lock are under the span of that call, those of an Unlock under the
// caller's, and no span has an argument of a command.
func TestRedisCommandsAreUnderOurSpans(t *testing.T) {
	s := server.Start(t, server.Redis{})
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr(), DisableIdentity: true})
	t.Cleanup(func() { _ = rdb.Close() })
	spans := tracetest.NewInMemoryExporter()
	provider := trace.NewTracerProvider(trace.WithSyncer(spans))
	must(t, redisotel.InstrumentTracing(rdb, redisotel.WithTracerProvider(provider), redisotel.WithDBStatement(false)))
	hooks := dlockotel.Hooks(dlockotel.WithTracerProvider(provider))
	c, err := dlock.New(lockredis.New(rdb, nil), &dlock.Options{Hooks: hooks})
	must(t, err)
	t.Cleanup(func() { _ = c.Close(context.Background()) })

	ctx, lockCaller := provider.Tracer("test").Start(t.Context(), "caller of Lock")
	lease, err := c.Mutex("orders/42").Lock(ctx)
	must(t, err)
	lockCaller.End()
	ctx, unlockCaller := provider.Tracer("test").Start(t.Context(), "caller of Unlock")
	must(t, lease.Unlock(ctx))
	unlockCaller.End()

	parents := make(map[string]string)
	all := spans.GetSpans()
	for _, s := range all {
		parents[s.SpanContext.SpanID().String()] = s.Name
	}
	commands := make(map[string]int)
	for _, s := range all {
		if strings.HasPrefix(s.Name, "eval") {
			commands[parents[s.Parent.SpanID().String()]]++
		}
		for _, a := range s.Attributes {
			if a.Value.Type() == attribute.STRING && s.InstrumentationScope.Name != dlockotel.Scope && strings.Contains(a.Value.AsString(), "orders/42") {
				t.Errorf("%s: %s tells the arguments: %s", s.Name, a.Key, a.Value.AsString())
			}
		}
	}
	if commands["dlock acquire"] == 0 || commands["caller of Unlock"] == 0 || len(commands) != 2 {
		t.Errorf("commands by the span that they are under: %v", commands)
		for _, s := range all {
			t.Logf("%s, under %s", s.Name, parents[s.Parent.SpanID().String()])
		}
	}
}
