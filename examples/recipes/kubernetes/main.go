// Command kubernetes is a scheduler of which one pod of a Deployment works, and the others
// stand by.
package main

import (
	"cmp"
	"context"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/dlock-go/dlock"
	_ "github.com/dlock-go/dlock/backend/redis" // or the backend that DLOCK_URL names
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	locks, err := dlock.Open(ctx, os.Getenv("DLOCK_URL"), &dlock.Options{
		TTL:    15 * time.Second,      // how long a pod that vanishes keeps the others from leading
		Label:  os.Getenv("POD_NAME"), // what dlock show says
		Logger: slog.Default(),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(context.WithoutCancel(ctx))
	listener, err := net.Listen("tcp", cmp.Or(os.Getenv("LISTEN"), ":8080"))
	if err != nil {
		log.Fatal(err)
	}
	if err := run(ctx, locks, listener, schedule); err != nil {
		log.Fatal(err)
	}
}

// schedule is the work of the leader. It ends with ctx, within the grace period of the pod.
func schedule(ctx context.Context, token uint64) error {
	tick := time.NewTicker(10 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			slog.Info("scheduling", "token", token) // what is written carries the token
		case <-ctx.Done():
			return nil
		}
	}
}

// run stands for leader and leads, again and again, until ctx ends. Then work may return in
// its own time, and another pod leads at once after that.
func run(ctx context.Context, locks *dlock.Client, listener net.Listener, work func(ctx context.Context, token uint64) error) error {
	var leading atomic.Bool
	server := &http.Server{Handler: probes(ctx, &leading), ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()

	err := dlock.Lead(ctx, locks.Mutex("scheduler/leader"), func(ctx context.Context, lease *dlock.Lease) error {
		leading.Store(true)
		defer leading.Store(false)
		return work(ctx, lease.Token())
	})
	if ctx.Err() != nil {
		slog.Info("stopped", "why", err) // with the error of work, if it has failed
		return nil
	}
	return err
}

// probes answers the kubelet, and whoever wants to know which pod leads.
func probes(ctx context.Context, leading *atomic.Bool) http.Handler {
	say := func(yes func() bool) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if !yes() {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}
	}
	mux := http.NewServeMux()
	mux.Handle("GET /readyz", say(func() bool { return ctx.Err() == nil })) // a pod that stands by is ready too
	mux.Handle("GET /leading", say(leading.Load))
	return mux
}
