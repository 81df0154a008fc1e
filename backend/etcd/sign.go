package etcd

import (
	"context"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

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
		s.watchFailed()
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
	s.mu.Lock()
	ctx, cancel := s.watching()
	s.mu.Unlock()
	return s.watch(ctx, cancel, s.sign, clientv3.WithRev(revision+1), clientv3.WithFilterPut()), cancel
}

// watch watches key until cancel is called. A member that does not answer in time
// is as good as a watch that has ended.
func (s *session) watch(ctx context.Context, cancel context.CancelFunc, key string, o ...clientv3.OpOption) clientv3.WatchChan {
	defer time.AfterFunc(s.backend.limit(), cancel).Stop()
	return s.backend.client.Watch(ctx, key, o...)
}

// watching returns a context for a watch. The client library puts all watches whose
// contexts carry the same metadata on one stream, which keeps the login that it
// was opened with, so that a server that has dropped this login refuses each watch
// on it: after a watch has failed the next ones are on another stream. It is called
// with s.mu held.
func (s *session) watching() (context.Context, context.CancelFunc) {
	ctx := metadata.AppendToOutgoingContext(clientv3.WithRequireLeader(s.ctx), "dlock-stream", strconv.Itoa(s.streams))
	return context.WithCancel(ctx)
}

func (s *session) watchFailed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams++
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
