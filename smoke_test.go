package dlock_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend/memory"
)

func TestSmoke(t *testing.T) {
	ctx := context.Background()
	c, err := dlock.New(memory.New(nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	m := c.Mutex("a")
	n := 0
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 1000 {
				l, err := m.Lock(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				n++
				if err := l.Unlock(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n != 16000 {
		t.Fatal(n)
	}
	err = dlock.Do(ctx, m, func(ctx context.Context, l *dlock.Lease) error {
		if _, ok := m.Held(ctx); !ok {
			t.Error("not held")
		}
		return dlock.Do(ctx, m, func(ctx context.Context, l2 *dlock.Lease) error {
			if l2.Token() != l.Token() {
				t.Error("token")
			}
			_, err := m.TryLock(context.Background())
			if !errors.Is(err, dlock.ErrHeld) {
				t.Error(err)
			}
			t.Log(err)
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	l, _ := m.Lock(ctx)
	if err := c.Close(ctx); err != nil {
		t.Fatal(err)
	}
	t.Log(l.Err(), l.Unlock(ctx))
	_, err = m.Lock(ctx)
	t.Log(err)
}

func BenchmarkLockUnlock(b *testing.B) {
	ctx := context.Background()
	c, _ := dlock.New(memory.New(nil), nil)
	m := c.Mutex("a")
	b.ReportAllocs()
	for b.Loop() {
		l, err := m.Lock(ctx)
		if err != nil {
			b.Fatal(err)
		}
		l.Unlock(ctx)
	}
}

func BenchmarkContended16(b *testing.B) {
	ctx := context.Background()
	c, _ := dlock.New(memory.New(nil), nil)
	m := c.Mutex("a")
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			l, _ := m.Lock(ctx)
			l.Unlock(ctx)
		}
	})
}
