package etcd

import "time"

// SetCheckEvery sets how often a waiter of b checks that it still waits for the right key.
// It comes before the first use of b.
func SetCheckEvery(b *Backend, d time.Duration) { b.checkEvery = d }

// MaxStreams is the greatest number of a client's streams of watches.
const MaxStreams = maxStreams
