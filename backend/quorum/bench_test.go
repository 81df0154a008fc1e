package quorum_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
)

// BenchmarkLockUnlock takes free locks on three masters and gives them back, one
// name for each goroutine.
func BenchmarkLockUnlock(b *testing.B) {
	masters := startMasters(b, 3)
	vouchFor(b, masters...)
	c := openURL(b, "redlock://"+addresses(masters), &dlock.Options{TTL: 10 * time.Second})
	for _, goroutines := range []int{1, 64} {
		b.Run(fmt.Sprintf("goroutines=%d", goroutines), func(b *testing.B) {
			b.ReportAllocs()
			var all sync.WaitGroup
			for g := range goroutines {
				all.Go(func() {
					m := c.Mutex(fmt.Sprint("x", g))
					for i := g; i < b.N; i += goroutines {
						if err := dlock.Do(context.Background(), m, nothing); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			all.Wait()
		})
	}
}

func nothing(context.Context, *dlock.Lease) error { return nil }
