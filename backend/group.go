package backend

import (
	"context"
	"slices"
	"sync"
	"time"
)

// ForEachGroup divides holds by what key returns for them, such as their session, calls
// do at once for each group, and returns when all calls have returned.
func ForEachGroup[K comparable](holds []*Hold, key func(*Hold) K, do func(K, []*Hold)) {
	groups := make(map[K][]*Hold, 1)
	for _, h := range holds {
		k := key(h)
		groups[k] = append(groups[k], h)
	}
	var all sync.WaitGroup
	for k, group := range groups {
		all.Go(func() { do(k, group) })
	}
	all.Wait()
}

// ForEachPart divides all into parts of size, calls do for each from a number of goroutines
// at most, and returns when all calls have returned.
func ForEachPart[T any](all []T, size, goroutines int, do func([]T)) {
	var done sync.WaitGroup
	defer done.Wait()
	slots := make(chan struct{}, goroutines)
	for part := range slices.Chunk(all, size) {
		slots <- struct{}{}
		done.Go(func() {
			defer func() { <-slots }()
			do(part)
		})
	}
}

// BoundAll is Bound for a call about all of holds: with the greatest TTL among them.
func BoundAll(ctx context.Context, holds []*Hold) (context.Context, context.CancelFunc) {
	var longest time.Duration
	for _, h := range holds {
		longest = max(longest, h.TTL)
	}
	return Bound(ctx, longest)
}
