// Command cache reads a cache of two files that must fit together. Any number of
// processes read it; when it is stale one of them rebuilds it.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/dlock-go/dlock"
	_ "github.com/dlock-go/dlock/backend/file" // or the backend that DLOCK_URL names
)

func main() {
	ctx := context.Background()
	locks, err := dlock.Open(ctx, os.Getenv("DLOCK_URL"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(ctx)
	prices := newCache(locks, "prices", os.Getenv("CACHE"), time.Minute)
	prices.build = func(_ context.Context, folder string) error {
		log.Println("rebuilding")
		now := []byte(time.Now().String() + "\n")
		return errors.Join(os.WriteFile(filepath.Join(folder, "list"), now, 0o644),
			os.WriteFile(filepath.Join(folder, "index"), now, 0o644))
	}
	prices.publish = func(_ context.Context, folder string) error {
		log.Println("copying", folder, "to the web servers, which takes long")
		return nil
	}
	err = prices.read(ctx, func(_ context.Context, folder string) error {
		list, err := os.ReadFile(filepath.Join(folder, "list"))
		fmt.Printf("%s", list)
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
}

// A cache is a folder that all its users reach.
type cache struct {
	content    *dlock.RWMutex // held by who reads the folder, exclusively by who writes it
	rebuilding *dlock.Mutex   // held by the one who has undertaken to rebuild it
	folder     string
	maxAge     time.Duration

	build   func(ctx context.Context, folder string) error // writes the files
	publish func(ctx context.Context, folder string) error // reads them after each rebuild
}

func newCache(locks *dlock.Client, name, folder string, maxAge time.Duration) *cache {
	return &cache{
		content:    locks.RWMutex(name + "/content"),
		rebuilding: locks.Mutex(name + "/rebuilding"),
		folder:     folder,
		maxAge:     maxAge,
	}
}

// read rebuilds the cache if it is stale and nobody else does, and calls use, during which
// nobody changes the files. While another process rebuilds, read waits, or hands out what
// there was before.
func (c *cache) read(ctx context.Context, use func(ctx context.Context, folder string) error) error {
	for {
		if age, built := c.age(); !built || age > c.maxAge {
			if err := c.refresh(ctx); err != nil && !errors.Is(err, dlock.ErrHeld) {
				return err
			}
		}
		built := false
		err := dlock.Do(ctx, c.content.RLocker(), func(ctx context.Context, _ *dlock.Lease) error {
			if _, built = c.age(); !built {
				return nil // the other process has not locked the content yet
			}
			return use(ctx, c.folder)
		})
		if err != nil || built {
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond): // for the other process to lock the content
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// refresh rebuilds the cache if it is stale. It fails with dlock.ErrHeld if another
// process does that.
func (c *cache) refresh(ctx context.Context) error {
	return dlock.TryDo(ctx, c.rebuilding, func(ctx context.Context, _ *dlock.Lease) error {
		if age, built := c.age(); built && age <= c.maxAge {
			return nil // somebody has rebuilt it in between
		}
		return dlock.Do(ctx, c.content, func(ctx context.Context, lease *dlock.Lease) error {
			if err := c.rebuild(ctx); err != nil {
				return err
			}
			// The others read from here on, and nobody can write before publish has ended.
			if err := lease.Downgrade(ctx); err != nil {
				return err
			}
			return c.publish(ctx, c.folder)
		})
	})
}

// rebuild marks the cache as built last, and as not built first: what a process leaves
// that dies in between is no cache.
func (c *cache) rebuild(ctx context.Context) error {
	if err := os.Remove(c.mark()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := c.build(ctx, c.folder); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err // the lock is lost: somebody else may be writing these files
	}
	return os.WriteFile(c.mark(), nil, 0o644)
}

func (c *cache) mark() string { return filepath.Join(c.folder, "built") }

// age is how long ago the cache was built, if it was.
func (c *cache) age() (age time.Duration, built bool) {
	mark, err := os.Stat(c.mark())
	if err != nil {
		return 0, false
	}
	return time.Since(mark.ModTime()), true
}
