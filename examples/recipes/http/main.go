// Command http ships orders on request. Any number of copies may run: no order is worked
// on twice at a time.
package main

import (
	"cmp"
	"context"
	"errors"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/dlock-go/dlock"
	_ "github.com/dlock-go/dlock/backend/redis" // or the backend that DLOCK_URL names
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	locks, err := dlock.Open(ctx, os.Getenv("DLOCK_URL"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(context.WithoutCancel(ctx))
	server := &http.Server{
		Addr:              cmp.Or(os.Getenv("LISTEN"), ":8080"),
		Handler:           newHandler(locks, ship),
		ReadHeaderTimeout: 5 * time.Second,
	}
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }()
	select {
	case err := <-failed:
		log.Print(err)
	case <-ctx.Done():
		// Orders in work are finished and their locks given back, within a limit.
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		if err := server.Shutdown(end); err != nil {
			log.Print(err)
		}
	}
}

// ship stands for the work. Whatever it writes to carries the token: see the recipes on
// fenced writes.
func ship(ctx context.Context, order string, token uint64) error {
	log.Printf("shipping order %s with token %d", order, token)
	select {
	case <-time.After(5 * time.Second):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func newHandler(locks *dlock.Client, ship func(ctx context.Context, order string, token uint64) error) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders/{id}/ship", func(w http.ResponseWriter, r *http.Request) {
		order := r.PathValue("id")
		lock := locks.Mutex("orders/"+order, dlock.WithMaxWait(time.Second))
		err := dlock.Do(r.Context(), lock, func(ctx context.Context, lease *dlock.Lease) error {
			return ship(ctx, order, lease.Token())
		})
		if err != nil {
			log.Printf("order %s: %v", order, err)
		}
		reply(w, err) // not before Do has returned: it knows whether the lock lasted
	})
	return mux
}

// reply tells a client whether it makes sense to ask again.
func reply(w http.ResponseWriter, err error) {
	switch {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case errors.Is(err, dlock.ErrLost):
		http.Error(w, "interrupted: look at the order before you ask again", http.StatusInternalServerError)
	case errors.Is(err, dlock.ErrHeld):
		w.Header().Set("Retry-After", "1")
		http.Error(w, "somebody else works on this order", http.StatusConflict)
	case errors.Is(err, dlock.ErrUnavailable):
		w.Header().Set("Retry-After", "5")
		http.Error(w, "nothing was done: try again later", http.StatusServiceUnavailable)
	case errors.Is(err, dlock.ErrInvalidName):
		http.Error(w, "no such order", http.StatusBadRequest)
	default:
		http.Error(w, "the order was not shipped", http.StatusInternalServerError)
	}
}
