package etcd

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/backend"
)

// ownWatchPart is after which part of the TTL a waiter's own key is watched. That is a
// request more, and most waits are shorter.
const ownWatchPart = 15

// awaitGrant returns nil when the position has no predecessor any more. While the
// server is away it goes on for as long as the session lasts. It calls queued when the
// predecessor is another client's.
func (p *position) awaitGrant(ctx context.Context, queued func()) error {
	s := p.session
	s.waiters.Add(1)
	defer s.waiters.Add(-1)
	s.backend.janitor.Go(func(context.Context) { s.renewForWaiters() }) // tend may come too late
	waitCtx, cancel := context.WithCancelCause(backend.WithValues(s.ctx, ctx))
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { cancel(nil) })()
	watchOwn := time.AfterFunc(s.granted/ownWatchPart, func() {
		s.backend.janitor.Go(func(context.Context) { p.watchOwn(waitCtx, cancel) })
	})
	defer watchOwn.Stop()
	var pause backend.Backoff
	for p.predecessor != nobody {
		if p.isBehindOwnClient() {
			p.request.Answered()
		} else {
			queued()
		}
		switch err := p.awaitChange(waitCtx); {
		case ctx.Err() != nil:
			return backend.Cause(ctx)
		case s.ended() != nil:
			return s.ended()
		case waitCtx.Err() != nil:
			return context.Cause(waitCtx)
		case err == nil:
			pause.Reset()
		case errors.Is(err, backend.ErrLost), errors.Is(err, backend.ErrAuth):
			return err
		default:
			backend.Sleep(waitCtx, pause.Next())
		}
	}
	return nil
}

// watchOwn ends the wait when somebody deletes the position's key: whoever is next is behind
// the same predecessor then, and would be let in beside this one.
func (p *position) watchOwn(ctx context.Context, end context.CancelCauseFunc) {
	s := p.session
	if s.awaitDeletion(ctx, p.key.own, p.revision, s.backend.streams.take) {
		end(backend.Fail(backend.ErrLost, errKeyDeleted))
	}
}

// awaitChange waits until the predecessor is another one, or none. It asks for what
// happened before the predecessor was watched.
func (p *position) awaitChange(ctx context.Context) error {
	if p.unsorted {
		return p.findPredecessor(ctx)
	}
	watched := p.predecessor
	w := p.session.joinWatcher(watched.key)
	if w == nil {
		return backend.ErrClosed
	}
	defer w.leave()
	recheck := time.NewTicker(backend.Jitter(p.session.backend.checkEvery))
	defer recheck.Stop()
	for {
		state := w.state(p.seen)
		if state.handedOver != nobody && state.handedOver.created < p.revision {
			p.predecessor, p.marked, p.grantedByEvent = nobody, state.handedOver, true
			return nil
		}
		if !state.deleted {
			unchanged, err := p.awaitNews(ctx, state, recheck.C)
			switch {
			case err != nil:
				return err
			case unchanged && state.ended:
				return errWatchEnded
			case unchanged:
				continue
			}
		}
		if err := p.findPredecessor(ctx); err != nil {
			return err
		}
		switch {
		case p.predecessor != watched:
			return nil
		case state.ended:
			return errWatchEnded
		}
	}
}

// awaitNews waits until there is something new to know of the predecessor. It returns
// false if a check does not find it as it was.
func (p *position) awaitNews(ctx context.Context, state watchState, recheck <-chan time.Time) (unchanged bool, err error) {
	if state.from > p.seen || state.ended { // it may have changed before it was watched, or after
		return p.isUnchanged(ctx, state.from), nil
	}
	select {
	case <-state.changed:
		return true, nil
	case <-recheck:
		return p.isUnchanged(ctx, 0), nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// findPredecessor asks what is ahead now, and whether the position's own key exists.
// That key is deleted with the lease, and then nothing below its revision means
// anything. The answer is short, but the server reads all of a queue to find the nearest
// key, so that nobody asks who can do without: see isUnchanged.
//
// One member answers by itself. If it lags behind, it may still name a key that is
// deleted, so a request that gets no further asks the cluster. No member misses a key
// that exists: no key is ever added below an existing one, and no lease ends before
// its time.
func (p *position) findPredecessor(ctx context.Context) error {
	watched, isFirst := p.predecessor, p.unsorted
	err := p.readQueue(ctx, clientv3.WithSerializable())
	if errors.Is(err, errLags) || err == nil && p.predecessor == watched && !isFirst {
		err = p.readQueue(ctx)
	}
	return err
}

func (p *position) readQueue(ctx context.Context, how ...clientv3.OpOption) error {
	free, err := p.session.backend.slot(ctx)
	if err != nil {
		return err
	}
	defer free()
	ctx, cancel := p.session.backend.request(ctx)
	defer cancel()
	get := func(key string, o ...clientv3.OpOption) clientv3.Op {
		return clientv3.OpGet(key, slices.Concat(o, how)...)
	}
	ops := []clientv3.Op{
		get(p.key.own, clientv3.WithKeysOnly()),
		get(p.key.rivals(), append(clientv3.WithLastCreate(), clientv3.WithMaxCreateRev(p.revision-1))...),
	}
	if p.request.Mode == backend.Exclusive {
		ops = append(ops, get(p.key.formerWriters(), clientv3.WithPrefix(), clientv3.WithLimit(1)))
	}
	sent := time.Now()
	reply, err := p.session.backend.client.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		return fail(err)
	}
	if reply.Header.Revision < p.revision {
		return errLags
	}
	if own := first(reply.Responses[0].GetResponseRange()); own == nil || own.CreateRevision != p.revision {
		return backend.Fail(backend.ErrLost, errKeyDeleted)
	}
	p.session.backend.answered(sent)
	p.provenAt, p.seen, p.unsorted = sent, reply.Header.Revision, false
	p.setPredecessor(first(reply.Responses[1].GetResponseRange()))
	if len(ops) > 2 && p.predecessor == nobody {
		if former := first(reply.Responses[2].GetResponseRange()); former != nil {
			p.predecessor = versionOf(former)
		}
	}
	return nil
}

// isUnchanged reports whether the position's key and its predecessor exist at a revision
// that is not before from, and takes note of that revision: a predecessor that was the
// nearest is so for as long as it exists. Two keys cost the server the same however long
// the queue is. One member answers by itself, unless it lags behind.
func (p *position) isUnchanged(ctx context.Context, from int64) bool {
	free, err := p.session.backend.slot(ctx)
	if err != nil {
		return false
	}
	defer free()
	at, unchanged := p.readPair(ctx, clientv3.WithSerializable())
	if at < from {
		at, unchanged = p.readPair(ctx)
	}
	if !unchanged || at < from {
		return false
	}
	p.seen = max(p.seen, at)
	return true
}

// readPair reads the position's key and its predecessor. It returns the revision of the
// answer, and whether both are as they were. Zero is no answer.
func (p *position) readPair(ctx context.Context, how ...clientv3.OpOption) (at int64, unchanged bool) {
	ctx, cancel := p.session.backend.request(ctx)
	defer cancel()
	reply, err := p.session.backend.client.Txn(ctx).Then(
		clientv3.OpGet(p.key.own, slices.Concat(how, []clientv3.OpOption{clientv3.WithKeysOnly()})...),
		clientv3.OpGet(p.predecessor.key, how...),
	).Commit()
	if err != nil {
		return 0, false
	}
	own, ahead := first(reply.Responses[0].GetResponseRange()), first(reply.Responses[1].GetResponseRange())
	unchanged = own != nil && own.CreateRevision == p.revision &&
		ahead != nil && versionOf(ahead) == p.predecessor && !isMarked(ahead)
	return reply.Header.Revision, unchanged
}

// isBehindOwnClient reports whether the predecessor is a key of this client, which is
// about to delete it: no client asks for a lock that it has. A key that was left to
// expire is not about to be deleted.
func (p *position) isBehindOwnClient() bool {
	if p.session.isExpiring(p.predecessor.key) {
		return false
	}
	key := strings.TrimPrefix(p.predecessor.key, p.key.dir)
	return strings.HasPrefix(key, writers+p.session.id) || strings.HasPrefix(key, readers+p.session.id)
}

// setPredecessor takes the nearest key that conflicts, nil if there is none. If that
// key is marked, there is no other before it: its writer had the lock.
func (p *position) setPredecessor(rival *mvccpb.KeyValue) {
	p.predecessor, p.marked = nobody, nobody
	switch {
	case rival == nil:
	case isMarked(rival):
		p.marked = versionOf(rival)
	default:
		p.predecessor = versionOf(rival)
	}
}
