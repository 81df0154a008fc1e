package zk

import "time"

// SetCheckEvery sets how often a waiter of b checks its predecessor. It comes before the
// first use of b.
func SetCheckEvery(b *Backend, d time.Duration) { b.checkEvery = d }

// SetManyChildren has requests of b announce themselves if the lock's node has more children
// than n. It comes before the first use of b.
func SetManyChildren(b *Backend, n int32) { b.manyChildren = n }

// AnnouncementPauses are the pauses between looks for an announcement.
var AnnouncementPauses = announcementPauses
