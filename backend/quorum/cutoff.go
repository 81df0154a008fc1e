package quorum

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A client that reaches the front, and too few of the other nodes, cannot have the lock, and keeps the front
// from all who can. So it gives that back soon, and does not queue again before enough nodes answer. A node that
// is slow is none that is away: whoever waits pings the others, and gives the front back for those that it
// knew to be silent when it was let in. Where all nodes are needed nobody has the lock beside a node that is away,
// and it keeps its place at another.

// frontLimit is for how long whom the front has let in keeps it while other nodes are silent without
// which there are too few.
const frontLimit = 250 * time.Millisecond

// pingsTrusted is for how long nodes that answer no pings are not asked anything else: some answer requests
// all the same.
const pingsTrusted = 30 * time.Second

// keepsFront reports whether the request waited at the front, which has let it in: others may wait there.
func (a *attempt) keepsFront() bool { return a.queued && a.phase == gathering }

// awaitEnough waits until as many nodes answer as a hold takes. The others are pinged meanwhile, and asked now and
// then who has the lock: to ask them for it would take the front.
func (b *Backend) awaitEnough(ctx context.Context, r backend.Request) error {
	for began := time.Now(); !b.reachesEnough(); {
		for _, n := range b.nodes {
			if n.silent.Load() {
				n.check(b, r.TTL, func() {})
			}
		}
		if err := b.pause(ctx, nil, pingPause, true); err != nil {
			return err
		}
		if time.Since(began) >= pingsTrusted {
			if b.tellsEnough(ctx, r) {
				return nil
			}
			began = time.Now()
		}
	}
	return nil
}

// tellsEnough asks the silent nodes who has the lock, and reports whether as many answer as a hold takes.
func (b *Backend) tellsEnough(ctx context.Context, r backend.Request) bool {
	ctx, cancel := backend.Bound(ctx, answerLimit(r.TTL))
	defer cancel()
	var answered atomic.Int64
	var asked sync.WaitGroup
	for _, n := range b.nodes {
		i, ok := n.Backend.(backend.Inspector)
		if !n.silent.Load() {
			answered.Add(1)
		} else if ok {
			asked.Go(func() {
				if _, err := i.Inspect(ctx, r.Name); err == nil {
					answered.Add(1)
				}
			})
		}
	}
	asked.Wait()
	return int(answered.Load()) >= b.need
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
