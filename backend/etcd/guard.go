package etcd

import (
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/backend"
)

func (s *session) guardRevision() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision
}

// unmoved demands that the guard has not been changed after revision.
func (s *session) unmoved(revision int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(s.guard), "=", revision)
}

// guardSeen takes what was found of the guard after a request was not carried out,
// and reports whether that is what it had demanded. A guard that has gone has gone
// with the lease.
func (s *session) guardSeen(found *pb.RangeResponse, demanded int64) (unmoved bool, err error) {
	revision := int64(0)
	if len(found.Kvs) > 0 {
		revision = found.Kvs[0].ModRevision
	}
	if revision < demanded {
		s.end(errRevoked)
		return false, s.over()
	}
	s.moveGuard(revision)
	return revision == demanded, nil
}

// moveGuard notes that the guard has been changed at revision.
func (s *session) moveGuard(revision int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision = max(s.revision, revision)
}

// settle makes certain that a request of which no answer came leaves nothing
// behind: it deletes the key and changes the guard, so that the request cannot
// succeed later either. Other requests under way are shut out with it; they
// notice, and repeat themselves. So does another settle, whose own late copy
// could otherwise delete a key that is used again.
func (s *session) settle(p *place) error {
	guard := s.guardRevision()
	ctx, cancel := s.bound()
	defer cancel()
	reply, err := s.backend.client.Txn(ctx).
		If(s.unmoved(guard)).
		Then(clientv3.OpPut(s.guard, "", clientv3.WithLease(s.lease)), clientv3.OpDelete(p.key.own)).
		Else(s.look).
		Commit()
	switch {
	case errors.Is(err, rpctypes.ErrNoSpace):
		return s.settleFull(ctx, p)
	case err != nil:
		return s.failed(err)
	case reply.Succeeded:
		s.moveGuard(reply.Header.Revision)
		return nil
	}
	if _, err := s.guardSeen(reply.Responses[0].GetResponseRange(), guard); err != nil {
		return err
	}
	return errGuardMoved
}

// settleFull does with a server that takes no puts, only deletes: it refuses a
// late request as well. The key is not used again.
func (s *session) settleFull(ctx context.Context, p *place) error {
	p.burnt = true
	_, err := s.backend.client.Delete(ctx, p.key.own)
	return fail(err)
}

// remove deletes the key of a request that was answered.
func (s *session) remove(p *place) error {
	ctx, cancel := s.bound()
	defer cancel()
	_, err := s.backend.client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(p.key.own), "=", p.revision)).
		Then(clientv3.OpDelete(p.key.own)).
		Commit()
	return fail(err)
}

// cleanUp repeats remove or settle until the key is certainly gone: by its own
// success or with the session.
func (s *session) cleanUp(p *place, job func(*place) error) {
	backend.Retry(s.ctx, func(context.Context) error { return job(p) })
	s.giveUp(p.key, p.burnt)
}
