package etcd

import (
	"context"
	"errors"
	"maps"
	"slices"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/backend"
)

// deleteUnanswered makes sure that a request without an answer leaves nothing behind: it
// deletes the key, and has the request not carried out later either. A late copy of it
// could delete the key's next use, so there is none.
func (s *session) deleteUnanswered(ctx context.Context, p *position) error {
	p.key.keep = true
	ctx, cancel := s.backend.request(ctx)
	defer cancel()
	remove := clientv3.OpDelete(p.key.own)
	_, err := s.backend.client.Txn(ctx).Then(remove, clientv3.OpPut(p.key.void, "", clientv3.WithLease(s.lease))).Commit()
	if errors.Is(err, rpctypes.ErrNoSpace) { // the server deletes, and refuses the late request
		_, err = s.backend.client.Txn(ctx).Then(remove).Commit()
	}
	return s.fail(err)
}

// deleteAnswered deletes the key of a request that was answered.
func (s *session) deleteAnswered(ctx context.Context, p *position) error {
	ctx, cancel := s.backend.request(ctx)
	defer cancel()
	_, err := s.backend.client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(p.key.own), "=", p.revision)).
		Then(clientv3.OpDelete(p.key.own)).
		Commit()
	return fail(err)
}

// cleanUp calls del until the position's key is certainly gone, by its success or
// with the session.
func (s *session) cleanUp(p *position, del func(context.Context, *position) error) {
	backend.Retry(s.ctx, func(ctx context.Context) error {
		free, err := s.backend.slot(ctx)
		if err != nil {
			return err
		}
		defer free()
		return del(ctx, p)
	})
	s.freeKey(p.key)
}

// A markedKey is a key of this client that it has marked: it has handed the lock over
// to the next in line. The next holder deletes the key with its own release. This
// client does if that holder dies, or if the client itself is next.
type markedKey struct {
	*lockKey
	keyVersion
}

// addMarked notes marked keys, to be deleted some time later.
func (s *session) addMarked(keys ...markedKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range keys {
		s.marked[k.prefix()] = append(s.marked[k.prefix()], k)
	}
}

// takeMarked returns this client's marked key in the queue and mode of k, to be
// deleted by the caller.
func (s *session) takeMarked(k *lockKey) (former markedKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := s.marked[k.prefix()]
	if len(keys) == 0 {
		return former
	}
	s.marked[k.prefix()] = keys[1:]
	return keys[0]
}

// sweepMarked deletes those of the marked keys that still exist. What fails is for the next
// sweep.
func (s *session) sweepMarked() {
	s.mu.Lock()
	left := slices.Concat(slices.Collect(maps.Values(s.marked))...)
	clear(s.marked)
	s.mu.Unlock()
	for group := range slices.Chunk(left, maxParts) {
		var ops []clientv3.Op
		for _, k := range group {
			ops = append(ops, k.deleteOps()...)
		}
		ctx, cancel := s.backend.request(s.ctx)
		_, err := s.backend.client.Txn(ctx).Then(ops...).Commit()
		cancel()
		if err != nil {
			s.addMarked(group...)
			continue
		}
		for _, k := range group {
			s.freeKey(k.lockKey)
		}
	}
}

// leaveQueue deletes the position's key in the background.
func (p *position) leaveQueue() {
	s := p.session
	s.backend.janitor.Go(func(context.Context) { s.cleanUp(p, s.deleteAnswered) })
}
