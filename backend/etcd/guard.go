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
// notice, and repeat themselves. So does another settle, whose own late copy
// could otherwise delete a key that is used again.
func (s *session) settle(p *place) error {
	guard := s.guardRevision()
	ctx, cancel := s.bound()
	defer cancel()
	reply, err := s.backend.client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(s.guard), "=", guard)).
		Then(clientv3.OpPut(s.guard, "", clientv3.WithLease(s.lease)), clientv3.OpDelete(p.key.own())).
		Else(clientv3.OpGet(s.guard, clientv3.WithKeysOnly())).
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
	if _, err := s.guardSeen(reply, guard); err != nil {
		return err
	}
	return errGuardMoved
}

// settleFull does with a server that takes no puts, only deletes: it refuses a
// late request as well. The key is not used again.
func (s *session) settleFull(ctx context.Context, p *place) error {
	p.burnt = true
	_, err := s.backend.client.Delete(ctx, p.key.own())
	return fail(err)
}

// remove deletes the key of a request that was answered.
func (s *session) remove(p *place) error {
	ctx, cancel := s.bound()
	defer cancel()
	_, err := s.backend.client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(p.key.own()), "=", p.revision)).
		Then(clientv3.OpDelete(p.key.own())).
		Commit()
	return fail(err)
}

// cleanUp repeats remove or settle until the key is certainly gone: by its own
// success or with the session.
func (s *session) cleanUp(p *place, job func(*place) error) {
	backend.Retry(s.ctx, func(context.Context) error { return job(p) })
	s.giveUp(p.key, p.burnt)
}
