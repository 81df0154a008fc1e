package zk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/server"
)

// TestFailedWrite has the driver learn of it by what it reads.
func TestFailedWrite(t *testing.T) {
	near, far := net.Pipe()
	far.Close()
	l := &link{Conn: near, session: &session{b: new(Backend)}}
	if n, err := l.Write(make([]byte, 12)); n != 12 || err != nil {
		t.Errorf("the driver is told of %d bytes, %v", n, err)
	}
	if _, err := near.Read(make([]byte, 1)); err != io.ErrClosedPipe {
		t.Errorf("the connection goes on: %v", err)
	}
}

// TestEndUnderWork ends sessions while the server answers their requests. The
// race detector sees it if the driver reads an answer then that it has given up.
func TestEndUnderWork(t *testing.T) {
	s := server.Start(t, server.ZooKeeper{Config: []string{"forceSync=no"}})
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for round := range 40 {
		b, err := Connect(ctx, []string{s.Addr()}, nil)
		if err != nil {
			t.Fatal(err)
		}
		own, err := b.session()
		if err != nil {
			t.Fatal(err)
		}
		var work sync.WaitGroup
		var done atomic.Int64
		for i := range 16 {
			work.Go(func() {
				for n := 0; !own.isOver(); n++ {
					dir := fmt.Sprintf("%s/%d-%d-%d", b.opts.Root, round, i, n)
					if err := own.ensure(dir); err != nil && !errors.Is(err, errOver) {
						t.Error(err)
					}
					done.Add(1)
				}
			})
		}
		for done.Load() < 50 && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		own.end(backend.ErrClosed)
		work.Wait()
		if err := b.Close(ctx); err != nil {
			t.Error(err)
		}
	}
}
