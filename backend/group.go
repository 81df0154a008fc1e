package backend

import "sync"

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
