package integration

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/extra/redisotel/v9"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/etcd"
	lockredis "github.com/dlock-go/dlock/backend/redis"
	"github.com/dlock-go/dlock/internal/server"
	dlockotel "github.com/dlock-go/dlock/otel"
)

// TestDriversSpansAreUnderOurs has drivers trace what they send. What they send for a Lock
// must be under the span of that call, and some of what they send for an Unlock under that
// of its caller.
func TestDriversSpansAreUnderOurs(t *testing.T) {
	for name, open := range map[string]func(*testing.T, *trace.TracerProvider) backend.Backend{
		"redis": openRedis, "etcd": openEtcd,
	} {
		t.Run(name, func(t *testing.T) {
			spans := tracetest.NewInMemoryExporter()
			provider := trace.NewTracerProvider(trace.WithSyncer(spans))
			hooks := dlockotel.Hooks(dlockotel.WithTracerProvider(provider))
			c, err := dlock.New(open(t, provider), &dlock.Options{Hooks: hooks})
			must(t, err)
			t.Cleanup(func() { _ = c.Close(context.Background()) })
			warm, err := c.Mutex("first").Lock(t.Context()) // connects
			must(t, err)
			must(t, warm.Unlock(t.Context()))
			spans.Reset()

			ctx, lockCaller := provider.Tracer("test").Start(t.Context(), "caller of Lock")
			lease, err := c.Mutex("orders/42").Lock(ctx)
			must(t, err)
			lockCaller.End()
			ctx, unlockCaller := provider.Tracer("test").Start(t.Context(), "caller of Unlock")
			must(t, lease.Unlock(ctx))
			unlockCaller.End()

			names := make(map[string]string)
			all := spans.GetSpans()
			for _, s := range all {
				names[s.SpanContext.SpanID().String()] = s.Name
			}
			sent := make(map[string]int)
			for _, s := range all {
				if scope := s.InstrumentationScope.Name; scope == dlockotel.Scope || scope == "test" {
					continue
				}
				sent[names[s.Parent.SpanID().String()]]++
				for _, a := range s.Attributes {
					if strings.Contains(a.Value.String(), "orders/42") {
						t.Errorf("%s: %s tells an argument: %s", s.Name, a.Key, a.Value.String())
					}
				}
			}
			if sent["dlock acquire"] == 0 || sent["caller of Unlock"] == 0 || sent["caller of Lock"] > 0 {
				t.Errorf("the spans that a driver's are under: %v", sent)
				for _, s := range all {
					t.Logf("%s, under %q", s.Name, names[s.Parent.SpanID().String()])
				}
			}
		})
	}
}

func openRedis(t *testing.T, p *trace.TracerProvider) backend.Backend {
	client := redis.NewClient(&redis.Options{Addr: server.Start(t, server.Redis{}).Addr(), DisableIdentity: true})
	t.Cleanup(func() { _ = client.Close() })
	must(t, redisotel.InstrumentTracing(client, redisotel.WithTracerProvider(p), redisotel.WithDBStatement(false)))
	return lockredis.New(client, nil)
}

func openEtcd(t *testing.T, p *trace.TracerProvider) backend.Backend {
	client, err := clientv3.New(clientv3.Config{
		Endpoints:   []string{server.Start(t, server.Etcd{}).Addr()},
		Logger:      zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithStatsHandler(otelgrpc.NewClientHandler(otelgrpc.WithTracerProvider(p)))},
	})
	must(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return etcd.New(client, nil)
}

// TestSystemOfEachScheme has a URL of each scheme name the system that semantic conventions,
// or its makers, have a name for.
func TestSystemOfEachScheme(t *testing.T) {
	systems := make(map[string]bool)
	for _, scheme := range backend.Schemes() {
		hooks, reader := meters(dlockotel.WithURL(scheme + "://host"))
		for system := range sums(t, reader, "dlock.lease.active", "db.system.name") {
			if !slices.Contains([]string{"redis", "postgresql", "etcd", "zookeeper", "file", "memory"}, system) {
				t.Errorf("%s is said to be %q", scheme, system)
			}
			systems[system] = true
		}
		runtime.KeepAlive(hooks)
	}
	if len(systems) != 6 {
		t.Errorf("there are %v", systems)
	}
}
