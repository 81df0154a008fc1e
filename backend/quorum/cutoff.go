package quorum

import (
	"context"
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

// keepsFront reports whether the request waited at the front, which has let it in: others may wait there.
func (a *attempt) keepsFront() bool { return a.queued && a.phase == gathering }

// awaitEnough waits until as many nodes answer as a hold takes, without those that deny it. The others are
// pinged meanwhile.
func (b *Backend) awaitEnough(ctx context.Context, ttl time.Duration, denying map[int]bool) error {
	for !b.reachesEnough(denying) {
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
func (b *Backend) reachesEnough(denying map[int]bool) bool {
	reached := 0
	for i, n := range b.nodes {
		if !denying[i] && (n.pinger == nil || !n.silent.Load()) {
			reached++
		}
	}
	return reached >= b.need
}

// awaitOthers reports whether a request that some nodes deny may yet have the lock from the others: it waits,
// and those were enough if all of them answered. Who does not answer may be back in a moment: all together have
// as long as an answer may take, from since on, and no longer than the first one may where that is still to come.
func (a *attempt) awaitOthers(ctx context.Context, since time.Time, unheard bool) bool {
	denying := a.denying()
	if !a.request.Wait || len(a.votes)-len(denying) < a.b.need {
		return false
	}
	until := since.Add(answerLimit(a.request.TTL))
	if unheard && a.firstBy.Before(until) {
		until = a.firstBy
	}
	soon, cancel := backend.Bound(ctx, time.Until(until))
	defer cancel()
	_ = a.b.awaitEnough(soon, a.request.TTL, denying)
	// The end of the caller's context, and of the backend, is told by who goes on.
	return soon.Err() == nil || ctx.Err() != nil
}

// denying are the nodes that will not grant it.
func (a *attempt) denying() map[int]bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := make(map[int]bool)
	for i := range a.votes {
		if a.votes[i].state == denied {
			all[i] = true
		}
	}
	return all
}
