package dlock_test

import (
	"context"
	"flag"
	"runtime"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend/memory"
)

var contexts = flag.Int("contexts", 200_000, "the number of contexts that one lease ends")

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A lease that lasts for as long as its program has a context for each request that
// it serves. It keeps nothing of those that have ended.
func TestContextsThatHaveEnded(t *testing.T) {
	lease := lock(t, client(t, memory.New(nil), dlock.Options{}).Mutex("x"))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	before := heap()
	for range 100_000 {
		request, done := context.WithCancel(t.Context())
		lease.Context(request)
		done()
		lease.Context(ended)
	}
	if more := heap() - before; more > 100_000 {
		t.Errorf("%d bytes are kept", more)
	}
	unlock(t, lease)
}

// The end of a lease ends every context of it, however many, and calls itself no
// deeper for that.
func TestEndOfManyContexts(t *testing.T) {
	lease := lock(t, client(t, memory.New(nil), dlock.Options{TTL: time.Hour}).Mutex("x"))
	all := make([]context.Context, *contexts)
	start := time.Now()
	for i := range all {
		all[i] = lease.Context(t.Context())
	}
	made := time.Since(start)
	ended := make(chan error)
	go func() { ended <- lease.Unlock(t.Context()) }()
	<-lease.Done()
	is(t, lease.Err(), dlock.ErrUnlocked) // while contexts are still ended
	is(t, <-ended, nil)
	t.Logf("%d contexts made in %v, ended in %v", len(all), made, time.Since(start)-made)
	for _, ctx := range all {
		if ctx.Err() == nil {
			t.Fatal("a context lives on")
		}
	}
}
