package redis

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/server"
)

// TestKeyWithOtherContents has a hash of somebody else where a lock belongs, which has fields of the names
// that those of a lock have. Whoever asks for that lock is told so, at once, and nothing is written; who asks
// for another at the same time has that.
func TestKeyWithOtherContents(t *testing.T) {
	t.Parallel()
	s := server.Start(t, server.Redis{})
	admin := plainClient(t, s)
	for name, theirs := range map[string]map[string]string{
		"token":        {"t": "bob"},
		"kept":         {"d": "bob"},
		"kept+":        {"d": "99999999999999", "t": "bob"},
		"end":          {"o": "bob", "e": "soon"},
		"looked after": {"a": "bob"},
		"rank":         {"l": "bob"},
		"token nan":    {"t": "nan"},
		"token inf":    {"t": "inf"},
		"token great":  {"d": "99999999999999", "t": "1e300"},
		"kept nan":     {"d": "nan"},
		"kept inf":     {"d": "inf"},
		"kept great":   {"d": "1e300"},
		"end nan":      {"o": "bob", "e": "nan"},
		"end inf":      {"o": "bob", "e": "inf"},
		"looked inf":   {"a": "inf"},
		"rank great":   {"l": "-1e300"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			key := mainKey(name)
			c := openClient(t, s, nil)
			must[any](t)(nil, turns(ctx, c.Mutex("warm "+name), 1))
			must[int64](t)(admin.HSet(ctx, key, theirs).Result())
			for range 3 {
				var others sync.WaitGroup
				for i := range 20 {
					others.Go(func() {
						if err := turns(ctx, c.Mutex(fmt.Sprintf("%s %d", name, i)), 1); err != nil {
							t.Errorf("another lock: %v", err)
						}
					})
				}
				began := time.Now()
				_, err := c.Mutex(name).Lock(ctx)
				is(t, err, dlock.ErrConflict)
				_, err = c.Mutex(name).TryLock(ctx)
				is(t, err, dlock.ErrConflict)
				_, err = c.RWMutex(name).RLock(ctx)
				is(t, err, dlock.ErrConflict)
				if took := time.Since(began); took > time.Second {
					t.Errorf("it took %v", took)
				}
				if others.Wait(); t.Failed() {
					return
				}
			}
			is(t, c.Break(ctx, name, 1), dlock.ErrConflict)
			if theirs["t"]+theirs["e"] != "" {
				_, err := c.Inspect(ctx, name)
				is(t, err, dlock.ErrConflict)
			}
			if found := admin.HGetAll(ctx, key).Val(); !maps.Equal(found, theirs) {
				t.Errorf("the key has %v", found)
			}
			if left := admin.PTTL(ctx, key).Val(); left != -1 {
				t.Errorf("the key ends in %v", left)
			}
			if n := admin.Exists(ctx, key+":r", key+":q", key+":a").Val(); n != 0 {
				t.Error("there are keys beside it")
			}
		})
	}
}

// TestEntryOfAKeyWithOtherContents has somebody else put such a hash in the place of the key of a lock that
// somebody reads: who enters it again is told so, at once, and nothing is written.
func TestEntryOfAKeyWithOtherContents(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	s := server.Start(t, server.Redis{})
	admin := plainClient(t, s)
	m := openClient(t, s, nil).RWMutex("read")
	l := must[*dlock.Lease](t)(m.RLock(ctx))
	key, theirs := mainKey("read"), map[string]string{"d": "bob"}
	must[int64](t)(admin.Del(ctx, key).Result())
	must[int64](t)(admin.HSet(ctx, key, theirs).Result())
	began := time.Now()
	_, err := m.RLock(l.Context(ctx))
	is(t, err, dlock.ErrConflict)
	if took := time.Since(began); took > time.Second {
		t.Errorf("it took %v", took)
	}
	if found := admin.HGetAll(ctx, key).Val(); !maps.Equal(found, theirs) {
		t.Errorf("the key has %v", found)
	}
	must[int64](t)(admin.Del(ctx, key).Result()) // or Close waits for the end of the lease
}
