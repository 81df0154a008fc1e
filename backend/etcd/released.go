package etcd

import (
	"context"
	"maps"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/backend"
)

// A releasedKey is a key of this client that it has marked as released. The next
// holder deletes it with its own release. If that one dies, or the client itself
// comes first, the client does.
type releasedKey struct {
	*lockKey
	seenKey
}

// leaveReleased notes a key that was marked, to be deleted some time later.
func (s *session) leaveReleased(k releasedKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before, ok := s.released[k.mine()]; ok {
		s.undone = append(s.undone, before)
	}
	s.released[k.mine()] = k
	s.sweepLater()
}

// sweepLater is called with s.mu held.
func (s *session) sweepLater() {
	if !s.sweeping {
		s.sweeping = s.backend.janitor.Go(func(context.Context) { s.sweep() })
	}
}

// takeReleased returns the client's released key among those of k, for whoever is
// about to delete it.
func (s *session) takeReleased(k *lockKey) (former releasedKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	former = s.released[k.mine()]
	delete(s.released, k.mine())
	return former
}

// sweep deletes released keys that nobody came to delete.
func (s *session) sweep() {
	for {
		backend.Sleep(s.ctx, s.granted/3)
		s.mu.Lock()
		left := slices.AppendSeq(s.undone, maps.Values(s.released))
		s.undone = nil
		clear(s.released)
		if len(left) == 0 || s.ctx.Err() != nil {
			s.sweeping = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		for group := range slices.Chunk(left, maxParts) {
			s.deleteReleased(group)
		}
	}
}

// deleteReleased deletes the keys if they are still there. If that fails they are
// tried again with the next sweep.
func (s *session) deleteReleased(keys []releasedKey) {
	ctx, cancel := s.bound()
	defer cancel()
	var ops []clientv3.Op
	for _, k := range keys {
		ops = append(ops, k.tidy()...)
	}
	_, err := s.backend.client.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.undone = append(s.undone, keys...)
		s.sweepLater()
		return
	}
	for _, k := range keys {
		s.giveUp(k.lockKey, false)
	}
}
