package etcd

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/backend"
)

// revokeFrom is how many holds make it worth while to end their lease, and with it
// the session, in place of deleting their keys.
const revokeFrom = 100

// ReleaseAll implements backend.BatchReleaser: one request deletes a hundred keys,
// or a lease of which nothing else is left.
func (b *Backend) ReleaseAll(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	var longest time.Duration
	groups := make(map[*session][]*backend.Hold, 1)
	for _, h := range holds {
		longest = max(longest, h.TTL)
		s := h.State.(*hold).session
		groups[s] = append(groups[s], h)
	}
	ctx, cancel := backend.Bound(ctx, longest)
	defer cancel()
	var all sync.WaitGroup
	for s, group := range groups {
		all.Go(func() { s.releaseAll(ctx, group, report) })
	}
	all.Wait()
}

func (s *session) releaseAll(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	if len(holds) >= revokeFrom && s.retire(holds) {
		err := s.revokeAll(ctx)
		for _, h := range holds {
			report(h, err)
		}
		return
	}
	for group := range slices.Chunk(holds, maxParts) {
		s.releaseGroup(ctx, group, report)
	}
}

// retire takes a session out of use if nothing but the given holds is in it.
func (s *session) retire(holds []*backend.Hold) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over() != nil || s.keys > len(holds) {
		return false
	}
	for _, h := range holds {
		if h.State.(*hold).gone() { // its key is not among those that are counted
			return false
		}
	}
	s.retired = true
	clear(s.holds)
	return true
}

// revokeAll ends a session that was retired, and its lease. If that is not answered
// the lease ends by itself.
func (s *session) revokeAll(ctx context.Context) error {
	err := repeat(ctx, s.granted, s.revoke)
	s.end(errReleased)
	if err != nil {
		s.backend.janitor.Do(s.granted, s.revoke)
	}
	return err
}

// releaseGroup deletes the keys of the holds with one request. Those of which it
// does not say what became are released one by one.
func (s *session) releaseGroup(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	var plain []*backend.Hold
	for _, h := range holds {
		own := h.State.(*hold)
		if s.over() != nil || own.mayBeDowngraded() {
			report(h, s.backend.Release(ctx, h))
			continue
		}
		if done, err := own.begin(); done {
			report(h, err)
			continue
		}
		s.disown(own)
		plain = append(plain, h)
	}
	deleted, err := s.deleteAll(ctx, plain)
	for i, h := range plain {
		own := h.State.(*hold)
		if err == nil {
			report(h, own.end(outcomeOf(deleted[i], keyDeleted), nil))
			continue
		}
		_ = own.end(keyGone, err)
		report(h, s.backend.Release(ctx, h))
	}
}

// deleteAll reports which of the holds had a key that is now deleted.
func (s *session) deleteAll(ctx context.Context, holds []*backend.Hold) ([]bool, error) {
	if len(holds) == 0 {
		return nil, nil
	}
	ctx, cancel := s.exchange(ctx)
	defer cancel()
	ops := make([]clientv3.Op, len(holds))
	for i, h := range holds {
		own := h.State.(*hold)
		ops[i] = clientv3.OpTxn([]clientv3.Cmp{own.stands()}, []clientv3.Op{clientv3.OpDelete(own.key.own)}, nil)
	}
	reply, err := s.backend.client.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		return nil, fail(err)
	}
	deleted := make([]bool, len(holds))
	for i := range holds {
		deleted[i] = reply.Responses[i].GetResponseTxn().Succeeded
	}
	return deleted, nil
}

var errReleased = errors.New("all locks of the etcd lease were released")
