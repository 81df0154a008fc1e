package etcd

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/backend"
)

// watchGuard ends the session when the guard is gone. A watch that breaks off
// is made anew, after a look at the guard. The first one is told by closing
// watched.
func (s *session) watchGuard(revision int64, watched chan<- struct{}) {
	pause := backend.Backoff{Max: 5 * time.Second}
	for first := true; ; first = false {
		events, cancel := s.guardEvents(revision)
		if first {
			close(watched)
		}
		deleted := anyEvent(events)
		cancel()
		if deleted {
			s.end(errRevoked)
			return
		}
		for revision = 0; revision == 0; {
			if !backend.Sleep(s.ctx, pause.Next()) {
				return
			}
			revision = s.lookAtGuard()
		}
	}
}

// guardEvents returns the deletion of the guard after revision, once the server
// has made the watch or refused it.
func (s *session) guardEvents(revision int64) (clientv3.WatchChan, context.CancelFunc) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(s.ctx))
	return s.backend.client.Watch(ctx, s.guard, clientv3.WithRev(revision+1), clientv3.WithFilterPut()), cancel
}

// anyEvent waits for an event and reports false if the watch ends without one.
func anyEvent(events clientv3.WatchChan) bool {
	for reply := range events {
		if len(reply.Events) > 0 {
			return true
		}
	}
	return false
}

// lookAtGuard returns a revision at which the guard was there, or zero if it
// cannot be read. A guard that is gone ends the session.
func (s *session) lookAtGuard() int64 {
	ctx, cancel := s.bound()
	defer cancel()
	reply, err := s.backend.client.Get(ctx, s.guard, clientv3.WithKeysOnly())
	switch {
	case err != nil:
		return 0
	case len(reply.Kvs) == 0:
		s.end(errRevoked)
		return 0
	}
	return reply.Header.Revision
}

func (s *session) guardRevision() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision
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
// notice, and repeat themselves.
func (s *session) settle(key string) error {
	ctx, cancel := s.bound()
	defer cancel()
	reply, err := s.backend.client.Txn(ctx).Then(
		clientv3.OpPut(s.guard, "", clientv3.WithLease(s.lease)),
		clientv3.OpDelete(key),
	).Commit()
	switch {
	case err == nil:
		s.moveGuard(reply.Header.Revision)
		return nil
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		s.end(err)
		return nil
	case errors.Is(err, rpctypes.ErrNoSpace):
		// A full server takes no puts but deletes, and refuses a late request too.
		_, err = s.backend.client.Delete(ctx, key)
	}
	return fail(err)
}

// remove deletes a key whose request was answered.
func (s *session) remove(key string) error {
	ctx, cancel := s.bound()
	defer cancel()
	_, err := s.backend.client.Delete(ctx, key)
	return fail(err)
}

// cleanUp repeats remove or settle until the key is certainly gone: by its own
// success or with the session.
func (s *session) cleanUp(key string, job func(key string) error) {
	backend.Retry(s.ctx, func(context.Context) error { return job(key) })
	s.unreserve()
}
