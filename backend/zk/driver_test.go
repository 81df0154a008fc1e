package zk

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/server"
)

// TestEndUnderWork ends sessions while the server answers their requests. The
// race detector sees it if the driver reads an answer then that it has given up.
func TestEndUnderWork(t *testing.T) {
	t.Parallel()
	s := server.Start(t, server.ZooKeeper{Config: []string{"forceSync=no"}})
	for round := range 40 {
		b, own := sessionAt(t, s.Addr())
		enough := make(chan struct{})
		var work sync.WaitGroup
		var done atomic.Int64
		for i := range 16 {
			work.Go(func() {
				for n := 0; own.ctx.Err() == nil; n++ {
					dir := fmt.Sprintf("%s/%d-%d-%d", b.opts.Root, round, i, n)
					if _, err := own.ensureDir(dir); err != nil && !errors.Is(err, errSessionEnded) {
						t.Error(err)
					}
					if done.Add(1) == 50 {
						close(enough)
					}
				}
			})
		}
		<-enough
		own.end(backend.ErrClosed)
		work.Wait()
		if err := b.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
}
