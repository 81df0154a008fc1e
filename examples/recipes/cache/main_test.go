package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/examples/recipes/internal/try"
)

// process is one copy of the program, whose builds are counted.
func process(t *testing.T, url, folder string, builds *atomic.Int32) *cache {
	c := newCache(try.Open(t, url, nil), "prices", folder, time.Hour)
	c.build = func(_ context.Context, folder string) error {
		text := fmt.Appendf(nil, "build %d", builds.Add(1))
		return errors.Join(os.WriteFile(filepath.Join(folder, "list"), text, 0o644),
			os.WriteFile(filepath.Join(folder, "index"), text, 0o644))
	}
	c.publish = func(context.Context, string) error { return nil }
	return c
}

// fits reads both files and fails unless they are of one build.
func fits(_ context.Context, folder string) error {
	list, err := os.ReadFile(filepath.Join(folder, "list"))
	if err != nil {
		return err
	}
	index, err := os.ReadFile(filepath.Join(folder, "index"))
	if err == nil && string(list) != string(index) {
		err = fmt.Errorf("%s beside %s", list, index)
	}
	return err
}

func TestOneRebuildsManyRead(t *testing.T) {
	url, folder := "file://"+t.TempDir(), t.TempDir()
	var builds atomic.Int32
	processes := []*cache{process(t, url, folder, &builds), process(t, url, folder, &builds)}
	ended := make(chan error)
	const readers = 16
	for i := range readers {
		go func() { ended <- processes[i%2].read(t.Context(), fits) }()
	}
	for range readers {
		if err := try.Receive(t, "a reader", ended); err != nil {
			t.Error(err)
		}
	}
	if n := builds.Load(); n != 1 {
		t.Errorf("built %d times", n)
	}
	// Who found the cache stale, and gets its turn when it has been rebuilt, leaves it alone.
	if err := processes[1].refresh(t.Context()); err != nil || builds.Load() != 1 {
		t.Errorf("a fresh cache: %v, built %d times", err, builds.Load())
	}
	old := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(filepath.Join(folder, "built"), old, old); err != nil {
		t.Fatal(err)
	}
	if err := processes[1].read(t.Context(), fits); err != nil || builds.Load() != 2 {
		t.Errorf("a stale cache: %v, built %d times", err, builds.Load())
	}
}

// While the builder publishes others read, nobody can write, and nobody waits to rebuild.
func TestOthersReadWhileTheBuilderPublishes(t *testing.T) {
	url, folder := "file://"+t.TempDir(), t.TempDir()
	var builds atomic.Int32
	builder, other := process(t, url, folder, &builds), process(t, url, folder, &builds)
	publishing, goOn := make(chan struct{}), make(chan struct{})
	builder.publish = func(ctx context.Context, folder string) error {
		close(publishing)
		<-goOn
		return fits(ctx, folder)
	}
	ended := make(chan error, 1)
	go func() { ended <- builder.read(t.Context(), fits) }()
	try.Receive(t, "the builder publishes", publishing)

	if _, err := other.content.TryLock(t.Context()); !errors.Is(err, dlock.ErrHeld) {
		t.Errorf("a writer got %v, want ErrHeld", err)
	}
	other.maxAge = -1 // it finds the cache stale, and reads what there is
	if err := other.read(t.Context(), fits); err != nil {
		t.Error(err)
	}
	close(goOn)
	if err := try.Receive(t, "the builder's end", ended); err != nil {
		t.Error(err)
	}
}

// A builder that is stopped before it has locked the content costs those who wait for the
// first build no more than a look now and then.
func TestWaitingForTheFirstBuildIsIdle(t *testing.T) {
	url, folder := "file://"+t.TempDir(), t.TempDir()
	var builds, looks atomic.Int32
	other := process(t, url, folder, &builds)
	lease, err := other.rebuilding.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Unlock(t.Context())
	locks := try.Open(t, url, &dlock.Options{Hooks: dlock.Hooks{
		Acquired: func(context.Context, dlock.AcquiredEvent) { looks.Add(1) },
	}})
	const wait = 500 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	if err := newCache(locks, "prices", folder, time.Hour).read(ctx, fits); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the end of the context", err)
	}
	if n := looks.Load(); n == 0 || n > int32(wait/time.Millisecond) {
		t.Errorf("%d looks in %v", n, wait)
	}
}

// What a builder leaves that fails half way is not read.
func TestHalfABuildIsNoCache(t *testing.T) {
	url, folder := "file://"+t.TempDir(), t.TempDir()
	var builds atomic.Int32
	failing, other := process(t, url, folder, &builds), process(t, url, folder, &builds)
	broken := errors.New("no more room")
	failing.build = func(_ context.Context, folder string) error {
		return errors.Join(broken, os.WriteFile(filepath.Join(folder, "list"), []byte("half"), 0o644))
	}
	if err := other.read(t.Context(), fits); err != nil {
		t.Fatal(err)
	}
	failing.maxAge = -1
	if err := failing.read(t.Context(), fits); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
	if _, built := other.age(); built {
		t.Error("half a build counts as one")
	}
	if err := other.read(t.Context(), fits); err != nil || builds.Load() != 2 {
		t.Errorf("%v, built %d times", err, builds.Load())
	}
}
