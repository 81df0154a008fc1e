package etcd

import (
	"context"
	"errors"
	"maps"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/backend"
)

// getEpoch asks for the epoch key.
func (s *session) getEpoch() clientv3.Op { return clientv3.OpGet(s.epochKey, clientv3.WithKeysOnly()) }

func (s *session) currentEpoch() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.epoch
}

// isEpoch demands that the epoch key has not been written after revision.
func (s *session) isEpoch(revision int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(s.epochKey), "=", revision)
}

// checkEpoch takes the epoch key as it was found after a request was not carried out,
// and reports whether it is as the request had demanded. If the key is gone, so is the
// lease.
func (s *session) checkEpoch(found *pb.RangeResponse, demanded int64) (same bool, err error) {
	revision := int64(0)
	if len(found.Kvs) > 0 {
		revision = found.Kvs[0].ModRevision
	}
	if revision < demanded {
		s.end(errRevoked)
		return false, s.ended()
	}
	s.setEpoch(revision)
	return revision == demanded, nil
}

// setEpoch notes that the epoch key was written at revision.
func (s *session) setEpoch(revision int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch = max(s.epoch, revision)
}

// deleteUnanswered makes sure that a request without an answer leaves nothing behind.
// It deletes the request's key and begins a new epoch, so that the request cannot
// succeed later either. Other requests of the session that are on their way fail too;
// they notice and are sent again. So is another deleteUnanswered: a late copy of it
// could delete a key that is used again.
func (s *session) deleteUnanswered(p *position) error {
	epoch := s.currentEpoch()
	ctx, cancel := s.backend.request(s.ctx)
	defer cancel()
	reply, err := s.backend.client.Txn(ctx).
		If(s.isEpoch(epoch)).
		Then(clientv3.OpPut(s.epochKey, "", clientv3.WithLease(s.lease)), clientv3.OpDelete(p.key.own)).
		Else(s.getEpoch()).
		Commit()
	switch {
	case errors.Is(err, rpctypes.ErrNoSpace):
		return s.deleteOnFullServer(ctx, p)
	case err != nil:
		return s.fail(err)
	case reply.Succeeded:
		s.setEpoch(reply.Header.Revision)
		return nil
	}
	if _, err := s.checkEpoch(reply.Responses[0].GetResponseRange(), epoch); err != nil {
		return err
	}
	return errEpochChanged
}

// deleteOnFullServer deletes the key on a server that refuses puts for lack of space.
// It refuses the late request as well. The key is not used again.
func (s *session) deleteOnFullServer(ctx context.Context, p *position) error {
	p.keepKey = true
	_, err := s.backend.client.Delete(ctx, p.key.own)
	return fail(err)
}

// deleteAnswered deletes the key of a request that was answered.
func (s *session) deleteAnswered(p *position) error {
	ctx, cancel := s.backend.request(s.ctx)
	defer cancel()
	_, err := s.backend.client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(p.key.own), "=", p.revision)).
		Then(clientv3.OpDelete(p.key.own)).
		Commit()
	return fail(err)
}

// cleanUp calls del until the position's key is certainly gone, by its success or
// with the session.
func (s *session) cleanUp(p *position, del func(*position) error) {
	backend.Retry(s.ctx, func(context.Context) error { return del(p) })
	s.freeKey(p.key, p.keepKey)
}

// A markedKey is a key of this client that it has marked: it has handed the lock over
// to the next in line. The next holder deletes the key with its own release. This
// client does if that holder dies, or if the client itself is next.
type markedKey struct {
	*lockKey
	keyVersion
}

// addMarked notes a marked key, to be deleted some time later.
func (s *session) addMarked(k markedKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before, ok := s.marked[k.prefix()]; ok {
		s.undeleted = append(s.undeleted, before)
	}
	s.marked[k.prefix()] = k
	s.startSweep()
}

// startSweep is called with s.mu held.
func (s *session) startSweep() {
	if !s.sweeping {
		s.sweeping = s.backend.janitor.Go(func(context.Context) { s.sweepMarked() })
	}
}

// takeMarked returns this client's marked key in the queue and mode of k, to be
// deleted by the caller.
func (s *session) takeMarked(k *lockKey) (former markedKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	former = s.marked[k.prefix()]
	delete(s.marked, k.prefix())
	return former
}

// sweepMarked deletes marked keys until there are none.
func (s *session) sweepMarked() {
	for {
		backend.Sleep(s.ctx, s.granted/3)
		s.mu.Lock()
		left := slices.AppendSeq(s.undeleted, maps.Values(s.marked))
		s.undeleted = nil
		clear(s.marked)
		if len(left) == 0 || s.ctx.Err() != nil {
			s.sweeping = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		for group := range slices.Chunk(left, maxParts) {
			s.deleteMarked(group)
		}
	}
}

// deleteMarked deletes those of the keys that still exist. If it fails, the next sweep
// tries again.
func (s *session) deleteMarked(keys []markedKey) {
	ctx, cancel := s.backend.request(s.ctx)
	defer cancel()
	var ops []clientv3.Op
	for _, k := range keys {
		ops = append(ops, k.deleteOps()...)
	}
	_, err := s.backend.client.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.undeleted = append(s.undeleted, keys...)
		s.startSweep()
		return
	}
	for _, k := range keys {
		s.freeKey(k.lockKey, false)
	}
}

// leaveQueue deletes the position's key in the background.
func (p *position) leaveQueue() {
	s := p.session
	s.backend.janitor.Go(func(context.Context) { s.cleanUp(p, s.deleteAnswered) })
}
