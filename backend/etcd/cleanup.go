package etcd

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

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

// A removal is the key of a request without an answer, which waits to be deleted.
type removal struct {
	of   *position
	done chan error // receives the outcome
}

// deleteUnanswered makes sure that a request without an answer leaves nothing behind. It
// has the request's key deleted with a new epoch, so that the request cannot succeed later
// either.
func (s *session) deleteUnanswered(p *position) error {
	r := removal{p, make(chan error, 1)}
	if !s.addRemoval(r) {
		return backend.ErrClosed
	}
	return <-r.done
}

// addRemoval reports false if the backend is closed: the key then goes with the session.
func (s *session) addRemoval(r removal) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.removing && !s.backend.janitor.Go(func(context.Context) { s.removeUnanswered() }) {
		return false
	}
	s.removing = true
	s.unanswered = append(s.unanswered, r)
	return true
}

// removeUnanswered begins epochs until there is nothing to remove. Requests that failed
// because of an epoch are sent again, and a busy server carries them out in the time that
// the epoch took: until then no other begins.
func (s *session) removeUnanswered() {
	for {
		s.mu.Lock()
		n := min(len(s.unanswered), maxParts)
		group := s.unanswered[:n]
		s.unanswered = s.unanswered[n:]
		s.removing = n > 0
		s.mu.Unlock()
		if n == 0 {
			return
		}
		began := time.Now()
		err := s.beginEpoch(group)
		for _, r := range group {
			r.done <- err
		}
		if err == nil {
			backend.Sleep(s.ctx, time.Since(began))
		}
	}
}

// beginEpoch writes the epoch key and deletes the keys of a group. Other requests of the
// session that are on their way fail; they notice and are sent again. So does another
// beginEpoch: a late copy of it could delete a key that is used again.
func (s *session) beginEpoch(group []removal) error {
	epoch := s.currentEpoch()
	ctx, cancel := s.backend.request(s.ctx)
	defer cancel()
	ops := []clientv3.Op{clientv3.OpPut(s.epochKey, "", clientv3.WithLease(s.lease))}
	for _, r := range group {
		ops = append(ops, clientv3.OpDelete(r.of.key.own))
	}
	reply, err := s.backend.client.Txn(ctx).If(s.isEpoch(epoch)).Then(ops...).Else(s.getEpoch()).Commit()
	switch {
	case errors.Is(err, rpctypes.ErrNoSpace):
		for _, r := range group {
			r.of.keepKey = true // the deletion has no epoch
		}
		_, err := s.backend.client.Txn(ctx).Then(ops[1:]...).Commit() // the server deletes, and refuses the late requests
		return fail(err)
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
