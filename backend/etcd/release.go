package etcd

import (
	"context"
	"errors"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/backend"
)

// Release implements backend.Backend. A key that cannot be deleted in time is deleted
// later, or with its lease. That is no loss: the caller had the lock until it called
// Release.
func (b *Backend) Release(ctx context.Context, h *backend.Hold) error {
	own := h.State.(*hold)
	own.session.removeHold(own)
	lost := own.session.ended()
	err := own.explainLoss(ctx, repeat(ctx, h.TTL, own.release))
	switch {
	case lost == nil && errors.Is(err, backend.ErrLost) && own.unsure.Load():
		err = backend.Fail(backend.ErrUnavailable, errNoAnswer)
	case errors.Is(err, backend.ErrUnavailable), errors.Is(err, backend.ErrAuth):
		b.janitor.Go(func(context.Context) { backend.Retry(own.session.ctx, own.release) })
	}
	return b.at(err)
}

// repeat calls do until it has an answer, ctx ends, or limit has passed. A server without room
// is not asked again: it takes somebody to make room.
func repeat(ctx context.Context, limit time.Duration, do func(context.Context) error) error {
	ctx, cancel := backend.Bound(ctx, limit)
	defer cancel()
	for pause := (backend.Backoff{}); ; {
		err := do(ctx)
		if !errors.Is(err, backend.ErrUnavailable) || errors.Is(err, rpctypes.ErrNoSpace) || !backend.Sleep(ctx, pause.Next()) {
			return err
		}
	}
}

// release releases the hold once. It is no loss if the key was not there and an
// earlier release may have deleted it.
func (h *hold) release(ctx context.Context) error {
	s := h.session
	if s.backend.ctx.Err() != nil {
		return backend.ErrClosed
	}
	if err := s.ended(); err != nil {
		return err
	}
	free, err := s.backend.slot(ctx)
	if err != nil {
		return err
	}
	defer free()
	if done, err := h.startRelease(); done {
		return err
	}
	ctx, cancel := s.backend.request(ctx)
	defer cancel()
	what, err := h.sendRelease(ctx)
	return h.endRelease(what, err)
}

// startRelease notes that a release is about to be sent. Once one was carried out no
// other is sent: startRelease returns true, and the error of the release.
func (h *hold) startRelease() (done bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case !h.released.Load():
		h.sending++
	case !h.unsure.Load():
		err = backend.Fail(backend.ErrLost, errKeyDeleted)
	}
	return h.released.Load(), err
}

// An outcome is what a release has done.
type outcome int

const (
	keyGone    outcome = iota // nothing: the key did not exist
	keyDeleted                // it had no successor, or was a reader's
	keyMarked                 // the next in line has the lock
)

// endRelease notes the answer to a release.
func (h *hold) endRelease(what outcome, err error) error {
	s := h.session
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sending--
	if h.sending > 0 || err != nil {
		h.unsure.Store(true)
	}
	unsure := h.unsure.Load()
	switch {
	case err != nil:
		return s.fail(err)
	case what == keyGone && !unsure:
		err = backend.Fail(backend.ErrLost, errKeyDeleted)
	}
	if !h.released.Swap(true) {
		h.key.keep = h.key.keep || unsure
		if what == keyMarked {
			s.addMarked(markedKey{h.key, keyVersion{h.key.own, h.revision}})
		} else {
			s.freeKey(h.key)
		}
	}
	return err
}

// sendRelease sends a release. It asks for no proof that the key is still that of the hold:
// the key's name is not used again while a copy of the request may be on its way.
func (h *hold) sendRelease(ctx context.Context) (outcome, error) {
	if h.key.mode == backend.Shared || h.downgraded.Load() {
		return h.sendDelete(ctx)
	}
	isLast, end := h.hasNoSuccessor(), []clientv3.Op{clientv3.OpDelete(h.key.own)}
	if h.hasTails { // who has joined since has moved them; to read the queue would take longer
		isLast, end = h.key.tailsBefore(h.revision), append(end, h.key.deleteTails())
	}
	mark := []clientv3.Op{clientv3.OpPut(h.key.own, marked, clientv3.WithIgnoreLease())} // fails if there is no key
	deleteFormer := h.marked.deleteOps()
	reply, err := h.session.backend.client.Txn(ctx).If(isLast).Then(append(end, deleteFormer...)...).Else(append(mark, deleteFormer...)...).Commit()
	switch {
	case errors.Is(err, rpctypes.ErrNoSpace): // the server deletes, and puts nothing; or it has done this
		h.unsure.Store(true)
		return h.sendDelete(ctx)
	case errors.Is(err, rpctypes.ErrKeyNotFound):
		return keyGone, nil
	case err != nil:
		return keyGone, err
	case reply.Succeeded:
		return outcomeOf(hasDeleted(h, reply.Responses[0])), nil
	}
	return keyMarked, nil
}

// sendDelete sends a release that deletes the key. After a downgrade either of two may exist.
func (h *hold) sendDelete(ctx context.Context) (outcome, error) {
	remove := []clientv3.Op{clientv3.OpDelete(h.key.own)}
	if h.downgraded.Load() {
		remove = append(remove, clientv3.OpDelete(h.key.downgraded()))
	}
	reply, err := h.session.backend.client.Txn(ctx).Then(append(remove, h.marked.deleteOps()...)...).Commit()
	if err != nil {
		return keyGone, err
	}
	return outcomeOf(slices.ContainsFunc(reply.Responses[:len(remove)], func(r *pb.ResponseOp) bool { return hasDeleted(h, r) })), nil
}

func hasDeleted(_ *hold, r *pb.ResponseOp) bool { return r.GetResponseDeleteRange().GetDeleted() > 0 }

func outcomeOf(deleted bool) outcome {
	if deleted {
		return keyDeleted
	}
	return keyGone
}

// Expire implements backend.Expirer: the key moves to a lease of its own, which nobody
// renews. That lease lasts whole seconds, and at least as long as the cluster grants.
func (b *Backend) Expire(ctx context.Context, h *backend.Hold, d time.Duration) error {
	own := h.State.(*hold)
	own.session.removeHold(own)
	end := time.Now().Add(d)
	err := repeat(ctx, h.TTL, func(ctx context.Context) error { return own.moveToLease(ctx, d) })
	switch {
	case err == nil:
		own.session.setExpiring(own)
	case errors.Is(err, backend.ErrUnavailable), errors.Is(err, backend.ErrAuth):
		own.releaseAt(end)
	}
	return own.explainLoss(ctx, err)
}

// releaseAt has the hold be released then, unless it has been left to expire. Its key stays
// for as long as the session, which other holds may keep.
func (h *hold) releaseAt(end time.Time) {
	if s := h.session; !h.ending.Swap(true) {
		s.backend.janitor.Go(func(context.Context) {
			if backend.Sleep(s.ctx, time.Until(end)) && !s.isExpiring(h.key.own) {
				backend.Retry(s.ctx, h.release)
			}
		})
	}
}

// setExpiring notes that the hold's key is deleted with a lease of its own.
func (s *session) setExpiring(h *hold) {
	h.key.keep = true
	s.freeKey(h.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expiring[h.key.own], s.expiring[h.key.downgraded()] = true, true
}

// isExpiring reports whether the key was left to expire.
func (s *session) isExpiring(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.expiring[key]
}

func (h *hold) moveToLease(ctx context.Context, d time.Duration) error {
	s := h.session
	if err := s.ended(); err != nil {
		return err
	}
	lease, err := s.backend.grant(ctx, seconds(d))
	if err != nil {
		return err
	}
	ctx, cancel := s.backend.request(ctx)
	defer cancel()
	move := func(key string) clientv3.Op {
		return clientv3.OpPut(key, "", clientv3.WithIgnoreValue(), clientv3.WithLease(lease.ID))
	}
	former := clientv3.Compare(clientv3.Value(h.key.downgraded()), "=", h.downgradedValue())
	reply, err := s.backend.client.Txn(ctx).
		If(h.keyExists()).
		Then(move(h.key.own)).
		Else(clientv3.OpTxn([]clientv3.Cmp{former}, []clientv3.Op{move(h.key.downgraded())}, nil)).
		Commit()
	switch {
	case err != nil:
		return s.fail(err)
	case reply.Succeeded || reply.Responses[0].GetResponseTxn().Succeeded:
		return nil
	}
	return backend.Fail(backend.ErrLost, errKeyDeleted)
}

// seconds rounds d up.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// revokeFrom is how many holds are released by revoking their lease, if nothing else
// is under it.
const revokeFrom = 100

// ReleaseAll implements backend.BatchReleaser: one request deletes 120 keys, or
// revokes a lease with up to a thousand.
func (b *Backend) ReleaseAll(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	ctx, cancel := backend.BoundAll(ctx, holds)
	defer cancel()
	backend.ForEachGroup(holds, sessionOf, func(s *session, group []*backend.Hold) { s.releaseAll(ctx, group, report) })
}

func (s *session) releaseAll(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	if len(holds) >= revokeFrom && s.retireIfEmpty(holds) {
		err := s.revokeRetired(ctx)
		for _, h := range holds {
			report(h, err)
		}
		return
	}
	for group := range slices.Chunk(holds, maxParts) {
		s.releaseGroup(ctx, group, report)
	}
}

// retireIfEmpty takes the session out of use if nothing but the given holds is in it.
func (s *session) retireIfEmpty(holds []*backend.Hold) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended() != nil || s.reserved > len(holds) {
		return false
	}
	for _, h := range holds {
		if h.State.(*hold).released.Load() { // reserved does not count its key
			return false
		}
	}
	s.retired = true
	clear(s.holds)
	return true
}

// revokeRetired ends a retired session and its lease. If there is no answer, the lease
// ends by itself.
func (s *session) revokeRetired(ctx context.Context) error {
	err := repeat(ctx, s.granted, s.revoke)
	s.end(errReleased)
	if err != nil {
		s.backend.janitor.Do(s.granted, s.revoke)
	}
	return err
}

// releaseGroup deletes the keys of the holds with one request. If there is no answer,
// they are released one by one.
func (s *session) releaseGroup(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	var plain []*backend.Hold
	for _, h := range holds {
		own := h.State.(*hold)
		if s.ended() != nil || own.downgraded.Load() {
			report(h, s.backend.Release(ctx, h))
			continue
		}
		if done, err := own.startRelease(); done {
			report(h, err)
			continue
		}
		s.removeHold(own)
		plain = append(plain, h)
	}
	deleted, err := s.deleteAll(ctx, plain)
	for i, h := range plain {
		own := h.State.(*hold)
		if err == nil {
			report(h, own.explainLoss(ctx, own.endRelease(outcomeOf(deleted[i]), nil)))
			continue
		}
		_ = own.endRelease(keyGone, err)
		report(h, s.backend.Release(ctx, h))
	}
}

// deleteAll reports which of the holds had a key that is now deleted.
func (s *session) deleteAll(ctx context.Context, holds []*backend.Hold) ([]bool, error) {
	if len(holds) == 0 {
		return nil, nil
	}
	ctx, cancel := s.backend.request(ctx)
	defer cancel()
	deleted, err := s.askAll(ctx, ownOf(holds), func(h *hold) clientv3.Op { return clientv3.OpDelete(h.key.own) }, hasDeleted)
	return deleted, fail(err)
}

var errReleased = errors.New("all locks of the etcd lease were released")
