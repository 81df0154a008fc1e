package zk

import "time"

// SetCheckEvery sets how often a waiter of b checks its predecessor. It comes before the
// first use of b.
func SetCheckEvery(b *Backend, d time.Duration) { b.checkEvery = d }
