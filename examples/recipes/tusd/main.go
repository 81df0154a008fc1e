// Command tusd receives resumable uploads. Any number of copies may run behind a load
// balancer, with their files on one shared disk: an upload is written by one at a time.
package main

import (
	"cmp"
	"context"
	"errors"
	"log"
	"net/http"
	"os"

	"github.com/tus/tusd/v2/pkg/filestore"
	"github.com/tus/tusd/v2/pkg/handler"

	"github.com/dlock-go/dlock"
	_ "github.com/dlock-go/dlock/backend/redis" // or the backend that DLOCK_URL names
)

func main() {
	ctx := context.Background()
	locks, err := dlock.Open(ctx, os.Getenv("DLOCK_URL"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(ctx)
	uploads, err := newHandler(locks, os.Getenv("UPLOADS"))
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe(cmp.Or(os.Getenv("LISTEN"), ":8080"), http.StripPrefix("/files/", uploads)))
}

// newHandler serves the uploads that are in a folder.
func newHandler(locks *dlock.Client, folder string) (http.Handler, error) {
	parts := handler.NewStoreComposer()
	filestore.New(folder).UseIn(parts)
	parts.UseLocker(locker{locks})
	return handler.NewHandler(handler.Config{BasePath: "/files/", StoreComposer: parts})
}

// A locker is tusd's handler.Locker.
type locker struct{ locks *dlock.Client }

func (l locker) NewLock(upload string) (handler.Lock, error) {
	return &lock{mutex: l.locks.Mutex("uploads/" + upload)}, nil
}

// A lock is the lock of one request on one upload.
type lock struct {
	mutex *dlock.Mutex
	lease *dlock.Lease
}

// Lock waits until ctx ends. Then it calls interrupt, which has the request store what it
// has received and end, as soon as another request waits for the lock or the lock is lost.
func (l *lock) Lock(ctx context.Context, interrupt func()) error {
	lease, err := l.mutex.Lock(ctx)
	if errors.Is(err, dlock.ErrHeld) {
		return handler.ErrLockTimeout
	}
	if err != nil {
		return handler.NewError("ERR_LOCK_UNAVAILABLE", err.Error(), http.StatusServiceUnavailable)
	}
	l.lease = lease
	go func() {
		select {
		case <-lease.Wanted():
		case <-lease.Done():
		}
		if !errors.Is(lease.Err(), dlock.ErrUnlocked) {
			interrupt()
		}
	}()
	return nil
}

func (l *lock) Unlock() error { return l.lease.Unlock(context.Background()) }
