package quorum

import (
	"context"
	"time"
)

// A client that reaches the front, and too few of the other nodes, cannot have the lock, and keeps the front
// from all who can. So it gives that back soon, and does not queue again before enough nodes answer. A node that
// is slow is none that is away: whoever waits pings the others, and gives the front back for those that it
// knew to be silent when it was let in. Where all nodes are needed nobody has the lock beside a node that is away,
// and it keeps its place at another.

// frontLimit is for how long whom the front has let in keeps it while other nodes are silent without
// which there are too few.
const frontLimit = 250 * time.Millisecond

// keepsFront reports whether the request waited at the front, which has let it in: others may wait there.
func (a *attempt) keepsFront() bool { return a.queued && a.phase == gathering }

// awaitEnough waits until as many nodes answer as a hold takes. The others are pinged meanwhile.
func (b *Backend) awaitEnough(ctx context.Context, ttl time.Duration) error {
	for !b.reachesEnough() {
		for _, n := range b.nodes {
			if n.silent.Load() {
				n.check(b, ttl, func() {})
			}
		}
		if err := b.pause(ctx, nil, pingPause, true); err != nil {
			return err
		}
	}
	return nil
}

// reachesEnough reports whether as many nodes answer as a hold takes, or may: one that cannot be pinged is
// asked for the lock.
func (b *Backend) reachesEnough() bool {
	reached := 0
	for _, n := range b.nodes {
		if n.pinger == nil || !n.silent.Load() {
			reached++
		}
	}
	return reached >= b.need
}
