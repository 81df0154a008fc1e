//go:build linux

package file

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dlock-go/dlock"
)

func BenchmarkLockUnlock(b *testing.B) {
	c, err := dlock.Open(b.Context(), "file://"+b.TempDir(), nil)
	must(b, err)
	defer c.Close(b.Context())
	m := c.Mutex("lock")
	for b.Loop() {
		lease, err := m.Lock(b.Context())
		must(b, err)
		must(b, lease.Unlock(b.Context()))
	}
}

func BenchmarkHandOver(b *testing.B) {
	dir := b.TempDir()
	var done atomic.Int64
	var all sync.WaitGroup
	for range 16 {
		c, err := dlock.Open(b.Context(), "file://"+dir, nil)
		must(b, err)
		defer c.Close(b.Context())
		all.Go(func() {
			for done.Add(1) <= int64(b.N) {
				lease, err := c.Mutex("lock").Lock(b.Context())
				if err == nil {
					err = lease.Unlock(b.Context())
				}
				if err != nil {
					b.Error(err)
				}
			}
		})
	}
	all.Wait()
}
