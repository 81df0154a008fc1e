// Command observability has workers use locks, and serves what dlock's OpenTelemetry hooks
// tell of them to Prometheus:
//
//	go run .                        # locks in memory; metrics at http://localhost:2112/metrics
//	docker compose up               # with Redis, Prometheus, Grafana and the dashboard, at http://localhost:3000
//
// DLOCK_URL names another backend, such as redis://localhost:6379.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/dlock-go/dlock"
	_ "github.com/dlock-go/dlock/backend/memory"
	_ "github.com/dlock-go/dlock/backend/redis"
	dlockotel "github.com/dlock-go/dlock/otel"
)

func main() {
	addr := flag.String("listen", "localhost:2112", "address of the metrics")
	flag.Parse()
	url := os.Getenv("DLOCK_URL")
	if url == "" {
		url = "memory://"
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	listener, err := net.Listen("tcp", *addr)
	if err == nil {
		fmt.Printf("metrics of %s at http://%s/metrics\n", url, listener.Addr())
		err = run(ctx, url, listener)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run works and serves until ctx ends.
func run(ctx context.Context, url string, listener net.Listener) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	registry := prometheus.NewRegistry()
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry))
	if err != nil {
		return err
	}
	provider := metric.NewMeterProvider(metric.WithReader(exporter))
	defer provider.Shutdown(context.WithoutCancel(ctx))

	client, err := dlock.Open(ctx, url, &dlock.Options{
		TTL:    10 * time.Second,
		Hooks:  dlockotel.Hooks(dlockotel.WithURL(url), dlockotel.WithMeterProvider(provider)),
		Logger: slog.Default(), // says what a person should know: a lost lock, a server that does not answer
	})
	if err != nil {
		return err
	}
	defer client.Close(context.WithoutCancel(ctx))

	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()

	var workers sync.WaitGroup
	defer func() { stop(); workers.Wait() }()
	for range 8 {
		workers.Go(func() { work(ctx, client) })
	}
	workers.Go(func() { lead(ctx, client) })
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// work uses a few locks as programs do: some calls wait, some try, some read, and some
// take longer than others have patience for.
func work(ctx context.Context, client *dlock.Client) {
	for ctx.Err() == nil {
		order := client.RWMutex(fmt.Sprintf("orders/%d", rand.N(4)), dlock.WithMaxWait(100*time.Millisecond))
		var lease *dlock.Lease
		var err error
		switch rand.N(4) {
		case 0:
			lease, err = order.TryLock(ctx)
		case 1, 2:
			lease, err = order.RLock(ctx)
		default:
			lease, err = order.Lock(ctx)
		}
		pause(ctx, 40*time.Millisecond)
		if err == nil {
			_ = lease.Unlock(context.WithoutCancel(ctx))
		}
	}
}

// lead holds one lock for as long as it can, as a leader does: its lease is renewed.
func lead(ctx context.Context, client *dlock.Client) {
	_ = dlock.Lead(ctx, client.Mutex("leader"), func(term context.Context, _ *dlock.Lease) error {
		<-term.Done()
		return nil
	})
}

func pause(ctx context.Context, most time.Duration) {
	select {
	case <-time.After(rand.N(most)):
	case <-ctx.Done():
	}
}
