package etcd

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/backend"
)

// watchSign ends the session when its sign is gone. A watch that breaks off is
// made anew, after a look at the sign. The first one is told by closing watched.
func (s *session) watchSign(revision int64, watched chan<- struct{}) {
	pause := backend.Backoff{Max: 5 * time.Second}
	for first := true; ; first = false {
		began := time.Now()
		events, cancel := s.signEvents(revision)
		if first {
			close(watched)
		}
		deleted := anyEvent(events)
		cancel()
		if deleted {
			s.end(errRevoked)
			return
		}
		if time.Since(began) > pause.Max {
			pause.Reset()
		}
		for revision = 0; revision == 0; {
			if !backend.Sleep(s.ctx, pause.Next()) {
				return
			}
			revision = s.lookAtSign()
		}
	}
}

// signEvents returns the deletion of the sign after revision, once the server
// has made the watch or refused it.
func (s *session) signEvents(revision int64) (clientv3.WatchChan, context.CancelFunc) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(s.ctx))
	return s.backend.client.Watch(ctx, s.sign, clientv3.WithRev(revision+1), clientv3.WithFilterPut()), cancel
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

// lookAtSign returns a revision at which the sign was there, or zero if it
// cannot be read. A sign that is gone ends the session.
func (s *session) lookAtSign() int64 {
	ctx, cancel := s.bound()
	defer cancel()
	reply, err := s.backend.client.Get(ctx, s.sign, clientv3.WithKeysOnly())
	switch {
	case err != nil:
		return 0
	case len(reply.Kvs) == 0:
		s.end(errRevoked)
		return 0
	}
	return reply.Header.Revision
}
