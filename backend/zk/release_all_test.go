package zk_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/zk"
	"github.com/dlock-go/dlock/internal/faultnet"
)

// TestReleaseAll gives back many holds by few requests. One that was taken away is
// lost, and does not keep the others.
func TestReleaseAll(t *testing.T) {
	const n = 150
	for name, fault := range map[string]struct {
		begin    func(t *testing.T, p *faultnet.Proxy)
		lost     int
		requests int
	}{
		"all well":   {func(*testing.T, *faultnet.Proxy) {}, 0, 3},
		"one lost":   {func(t *testing.T, _ *faultnet.Proxy) { wipe(t, operator(t, shared.Addr()), rootOf(t)+"/7") }, 1, 3 + 64},
		"reply lost": {func(_ *testing.T, p *faultnet.Proxy) { p.DropReplyAfter(isRequest(opMulti)) }, 0, 3 + n},
	} {
		t.Run(name, func(t *testing.T) {
			p := proxyTo(t, shared.Addr())
			b, err := zk.Connect(testContext(t), []string{p.Addr()}, &zk.Options{Root: rootOf(t), SessionTimeout: time.Minute})
			must(t, err)
			defer b.Close(context.Background())
			var holds []*backend.Hold
			for i := range n {
				h, err := b.Acquire(testContext(t), backend.Request{Name: fmt.Sprint(i), Mode: backend.Exclusive, TTL: time.Minute, Wait: true})
				must(t, err)
				holds = append(holds, h)
			}
			fault.begin(t, p)
			tp, lost, told := record(p), 0, make(chan error, n)
			b.ReleaseAll(testContext(t), holds, func(_ *backend.Hold, err error) { told <- err })
			for range n {
				switch err := receive(t, "the end of a hold", told); {
				case errors.Is(err, backend.ErrLost):
					lost++
				default:
					must(t, err)
				}
			}
			if got := tp.count(opMulti) + tp.count(opDelete); lost != fault.lost || got > fault.requests {
				t.Errorf("%d holds were lost, and %d requests made", lost, got)
			}
			op := operator(t, shared.Addr())
			for i := range n {
				queued(t, op, fmt.Sprint(i), 0)
			}
		})
	}
}

// TestReleaseAllTakesFewGoroutines gives back more holds than fit in the transactions
// that are under way at a time.
func TestReleaseAllTakesFewGoroutines(t *testing.T) {
	const takers, each, few = 16, 160, 40 // goroutines; there are as many transactions
	b, err := zk.Connect(testContext(t), []string{shared.Addr()}, &zk.Options{Root: rootOf(t), SessionTimeout: time.Minute})
	must(t, err)
	defer b.Close(context.Background())
	var all sync.WaitGroup
	holds := make([]*backend.Hold, takers*each)
	for i := range takers {
		all.Go(func() {
			for j := i * each; j < (i+1)*each; j++ {
				h, err := b.Acquire(testContext(t), backend.Request{Name: fmt.Sprint(j), Mode: backend.Exclusive, TTL: time.Minute, Wait: true})
				if err != nil {
					t.Error(err)
					return
				}
				holds[j] = h
			}
		})
	}
	all.Wait()
	if t.Failed() {
		return
	}
	before, most := runtime.NumGoroutine(), 0
	var mu sync.Mutex
	b.ReleaseAll(testContext(t), holds, func(_ *backend.Hold, err error) {
		mu.Lock()
		defer mu.Unlock()
		most = max(most, runtime.NumGoroutine())
		if err != nil {
			t.Error(err)
		}
	})
	if most > before+few {
		t.Errorf("%d goroutines for %d holds, and %d before", most, len(holds), before)
	}
}
