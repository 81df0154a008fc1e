package redlock

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
)

// TestInspectABusyLock looks at a lock that changes hands all the time.
func TestInspectABusyLock(t *testing.T) {
	t.Parallel()
	masters := startMasters(t, 3)
	vouchFor(t, masters...)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan int)
	const clients = 4
	for range clients {
		c := openURL(t, "redlock://"+addresses(masters), nil)
		go func() {
			n := 0
			for ctx.Err() == nil {
				l, err := c.Mutex("x").Lock(ctx)
				if err == nil {
					n++
					err = l.Unlock(context.Background())
				}
				if err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
			done <- n
		}()
	}
	asks := openURL(t, "redlock://"+addresses(masters), &dlock.Options{InspectOnly: true})
	looks, free, empty, names, holders := 0, 0, 0, 0, map[uint64]bool{}
	const seen = 20 // looks between a hold and the next show none
	for end := time.Now().Add(wait); len(holders) < seen && time.Now().Before(end); looks++ {
		s, err := asks.Inspect(ctx, "x")
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Holders) == 0 {
			free++
			if len(s.Waiters) == 0 {
				empty++
			}
		} else {
			holders[s.Holders[0].Token] = true
		}
		for name, err := range asks.Names(ctx, "") {
			if err != nil {
				t.Fatal(err)
			}
			if name == "x" {
				names++
			}
		}
	}
	stop()
	total := 0
	for range clients {
		total += <-done
	}
	t.Logf("%d looks: no holder in %d, nobody in %d, listed in %d, %d holds seen; %d handovers", looks, free, empty, names, len(holders), total)
	if len(holders) < seen {
		t.Errorf("of a lock that is always held %d looks show %d holds", looks, len(holders))
	}
}

// TestNothingIsLeftOfAHungNode closes clients that have asked while a node hung.
func TestNothingIsLeftOfAHungNode(t *testing.T) {
	masters := startMasters(t, 3)
	vouchFor(t, masters...)
	holder := openURL(t, "redlock://"+addresses(masters), nil)
	l, err := holder.Mutex("x").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Unlock(context.Background())
	ask := func(n int) {
		c, err := dlock.Open(t.Context(), "redlock://"+addresses(masters), &dlock.Options{InspectOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		for range n {
			at := time.Now()
			s, err := c.Inspect(t.Context(), "x")
			if err != nil || len(s.Holders) != 1 {
				t.Errorf("%+v %v", s, err)
			}
			t.Logf("inspect: %v", time.Since(at).Round(time.Millisecond))
		}
		at := time.Now()
		for name, err := range c.Names(t.Context(), "") {
			if err != nil || name != "x" {
				t.Errorf("%q %v", name, err)
			}
		}
		t.Logf("names: %v", time.Since(at).Round(time.Millisecond))
		at = time.Now()
		if err := c.Break(t.Context(), "x", 1); !errors.Is(err, dlock.ErrNotHeld) {
			t.Error(err)
		}
		t.Logf("break: %v; all %v", time.Since(at).Round(time.Millisecond), time.Since(start))
		at = time.Now()
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
		t.Logf("close: %v", time.Since(at).Round(time.Millisecond))
	}
	ask(1)
	if err := masters[0].Pause(); err != nil {
		t.Fatal(err)
	}
	ask(1)
	before := runtime.NumGoroutine()
	ask(6)
	for range 5 {
		ask(1)
	}
	for end := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before+2 && time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond)
	}
	if n := runtime.NumGoroutine(); n > before+2 {
		buf := make([]byte, 1<<20)
		t.Errorf("%d goroutines, before %d\n%s", n, before, buf[:runtime.Stack(buf, true)])
	}
	if err := masters[0].Resume(); err != nil {
		t.Fatal(err)
	}
}
