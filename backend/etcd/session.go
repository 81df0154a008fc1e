package etcd

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/backend"
)

// A session is one lease and the keys under it. It ends when the lease is gone, or
// when it has not been renewed for so long that it may be gone: then it is never
// renewed again, so that the cluster deletes its keys.
//
// The session's key is watched: when it is deleted, the lease has ended.
//
// A request to join a queue that is not answered may arrive late. Each demands that a key
// of its own does not exist, which is put when the request is given up.
type session struct {
	backend *Backend
	lease   clientv3.LeaseID
	id      string // the lease as part of a key
	key     string
	granted time.Duration

	ctx        context.Context // ends with the session; its cause says why
	cancel     context.CancelCauseFunc
	renewal    flight
	waiters    atomic.Int64 // requests that wait
	foundTails atomic.Bool  // the last request that has joined a queue found tails: the next one expects some

	mu       sync.Mutex
	sent     time.Time // when the last renewal was sent that was answered
	requests int       // to join a queue
	reserved int       // keys under the lease, or about to be
	retired  bool      // it has no room any more
	claimed  map[string]bool
	holds    map[*hold]struct{}
	watchers map[string]*watcher
	marked   map[string][]markedKey // by queue and mode; to be deleted by the next sweep
	expiring map[string]bool        // keys with a lease of their own; their names are not used again
}

// newSession is granted a lease of ttl seconds, puts the session's key under it and
// watches that.
func (b *Backend) newSession(ctx context.Context, ttl int64) (*session, error) {
	sent := time.Now()
	lease, err := b.grant(ctx, ttl)
	if err != nil {
		return nil, err
	}
	s := &session{
		backend:  b,
		lease:    lease.ID,
		id:       leaseName(lease.ID),
		key:      b.prefix + "s/" + leaseName(lease.ID),
		granted:  time.Duration(lease.TTL) * time.Second,
		sent:     sent,
		claimed:  make(map[string]bool),
		holds:    make(map[*hold]struct{}),
		watchers: make(map[string]*watcher),
		marked:   make(map[string][]markedKey),
		expiring: make(map[string]bool),
	}
	put, err := s.putKey(ctx)
	if err != nil {
		b.janitor.Do(s.granted, s.revoke)
		return nil, err
	}
	s.ctx, s.cancel = context.WithCancelCause(b.ctx)
	watched := make(chan struct{})
	b.janitor.Go(func(context.Context) { s.watchKey(put.Header.Revision, watched) })
	b.janitor.Go(func(context.Context) { s.tend() })
	select {
	case <-watched:
	case <-ctx.Done(): // locks are safe without the watch: a loss is only noticed later
	}
	return s, nil
}

func (b *Backend) grant(ctx context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	ctx, cancel := b.request(ctx)
	defer cancel()
	sent := time.Now()
	lease, err := b.client.Grant(ctx, ttl)
	if err != nil {
		return nil, fail(err)
	}
	b.answered(sent)
	return lease, nil
}

func (s *session) putKey(ctx context.Context) (*clientv3.PutResponse, error) {
	ctx, cancel := s.backend.request(ctx)
	defer cancel()
	put, err := s.backend.client.Put(ctx, s.key, "", clientv3.WithLease(s.lease))
	return put, fail(err)
}

// ended returns why the session has ended, or nil.
func (s *session) ended() error {
	if s.ctx.Err() == nil {
		return nil
	}
	return backend.Fail(backend.ErrLost, context.Cause(s.ctx))
}

// end ends the session and tells its holds. The lease is revoked if keys may be left
// under it.
func (s *session) end(cause error) {
	s.mu.Lock()
	if s.ctx.Err() != nil {
		s.mu.Unlock()
		return
	}
	s.cancel(cause)
	holds, left := s.holds, s.reserved > 0 && !s.retired
	s.holds = nil
	s.mu.Unlock()
	s.backend.removeSession(s)
	for h := range holds {
		h.request.Lost(cause)
	}
	if left && !errors.Is(cause, rpctypes.ErrLeaseNotFound) {
		s.backend.janitor.Do(s.granted, s.revoke)
	}
}

// revoke ends the lease on the server.
func (s *session) revoke(ctx context.Context) error {
	ctx, cancel := backend.Bound(ctx, revokeTimeout)
	defer cancel()
	_, err := s.backend.client.Revoke(ctx, s.lease)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return nil
	}
	return fail(err)
}

// addHold has the session tell h of a loss. It fails if the session has ended.
func (s *session) addHold(h *hold) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ended(); err != nil {
		return err
	}
	s.holds[h] = struct{}{}
	return nil
}

// removeHold makes sure that h hears nothing more of the session.
func (s *session) removeHold(h *hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.holds, h)
}

// reserve reserves room for one key, if there is room. A session that keeps the names of
// many keys has none: it ends with its last hold. Nor has one that may end before a request
// has joined a queue and has renewed it: whoever waits would lose its place.
func (s *session) reserve() bool {
	if s.left() < min(3*s.backend.roundTrip.Limit(200*time.Millisecond, time.Second), s.granted/8) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reserved >= maxKeys || len(s.claimed) >= 2*maxKeys || s.retired || s.ctx.Err() != nil {
		return false
	}
	s.reserved++
	return true
}

// unreserve gives back the room of a key that was not claimed.
func (s *session) unreserve() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reserved--
}

// freeKey gives back the room of a key that is deleted. The key can be claimed again,
// unless a request that deletes it may still be on its way.
func (s *session) freeKey(k *lockKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reserved--
	if !k.keep {
		delete(s.claimed, k.own)
	}
}

// watchKey ends the session when its key is deleted after revision. It closes watched when
// the first watch is made.
func (s *session) watchKey(revision int64, watched chan<- struct{}) {
	made := sync.OnceFunc(func() { close(watched) })
	take := func(context.Context) (watchStream, func(), error) {
		return s.backend.streams.forSessions(), made, nil
	}
	if s.awaitDeletion(s.ctx, s.key, revision, take) {
		s.end(errRevoked)
	}
}

// awaitDeletion returns true when key, which existed at revision, is deleted, or false when
// ctx ends. A watch that fails is made again, once the key has been found.
func (s *session) awaitDeletion(ctx context.Context, key string, revision int64, take streamTaker) bool {
	pause := backend.Backoff{Max: 5 * time.Second}
	for {
		began := time.Now()
		if s.seesDeletion(ctx, key, revision, take) {
			return true
		}
		if time.Since(began) > pause.Max {
			pause.Reset()
		}
		for found := false; !found; {
			if !backend.Sleep(ctx, pause.Next()) {
				return false
			}
			reply, err := s.findKey(ctx, key)
			if err == nil && len(reply.Kvs) == 0 {
				return true
			}
			if found = err == nil; found {
				revision = reply.Header.Revision
			}
		}
	}
}

// A streamTaker chooses the stream for a watch, and has release called when the watch is
// made or refused.
type streamTaker func(context.Context) (on watchStream, release func(), err error)

// seesDeletion watches key and returns true when it is deleted after revision, or false
// when the watch ends without that.
func (s *session) seesDeletion(ctx context.Context, key string, revision int64, take streamTaker) bool {
	watchCtx, cancel := s.watchContext()
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	on, release, err := take(watchCtx)
	if err != nil {
		return false
	}
	events := s.watch(watchCtx, cancel, on, key, clientv3.WithRev(revision+1), clientv3.WithFilterPut())
	release()
	for reply := range events {
		if len(reply.Events) > 0 {
			return true
		}
	}
	if ctx.Err() == nil {
		s.backend.streams.fail(on)
	}
	return false
}

func (s *session) findKey(ctx context.Context, key string) (*clientv3.GetResponse, error) {
	ctx, cancel := s.backend.request(ctx)
	defer cancel()
	return s.backend.client.Get(ctx, key, clientv3.WithKeysOnly())
}

// A sessionGroup has the sessions of one TTL, the newest last.
type sessionGroup struct {
	sessions []*session
	creating flight
}

// session returns a session for ttl with room for one key, which it reserves.
func (b *Backend) session(ctx context.Context, ttl time.Duration) (*session, error) {
	for {
		s, g := b.sessionWithRoom(seconds(ttl))
		if s != nil {
			return s, nil
		}
		err := g.creating.do(ctx, &b.janitor, func(ctx context.Context) error { return b.createSession(ctx, g, seconds(ttl)) })
		if err != nil {
			return nil, err
		}
	}
}

// sessionWithRoom returns nil, and the group that a new session belongs to, if there is none.
func (b *Backend) sessionWithRoom(ttl int64) (*session, *sessionGroup) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.groups[ttl]
	if g == nil {
		g = &sessionGroup{}
		b.groups[ttl] = g
	}
	for _, s := range slices.Backward(g.sessions) {
		if s.reserve() {
			return s, g
		}
	}
	return nil, g
}

// createSession makes a session for all who need one.
func (b *Backend) createSession(ctx context.Context, g *sessionGroup, ttl int64) error {
	ctx, cancel := backend.Bound(ctx, min(time.Duration(ttl)*time.Second, backend.FirstAnswer))
	defer cancel()
	defer context.AfterFunc(b.ctx, cancel)()
	s, err := b.newSession(ctx, ttl)
	for errors.Is(err, backend.ErrUnavailable) && backend.Sleep(ctx, answerGrace) {
		s, err = b.newSession(ctx, ttl)
	}
	if err != nil {
		return err
	}
	b.mu.Lock()
	closed := b.calls.Err()
	if closed == nil {
		g.sessions = append(g.sessions, s)
	}
	b.mu.Unlock()
	if closed != nil {
		_ = s.revoke(context.Background()) // too late for Close to do it
	}
	return closed
}

// removeSession forgets a session that has ended.
func (b *Backend) removeSession(s *session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, g := range b.groups {
		g.sessions = slices.DeleteFunc(g.sessions, func(other *session) bool { return other == s })
	}
}

// endSessions revokes all leases, and with them all keys.
func (b *Backend) endSessions(ctx context.Context) error {
	b.mu.Lock()
	var all []*session
	for _, g := range b.groups {
		all = append(all, g.sessions...)
		g.sessions = nil
	}
	b.mu.Unlock()
	errs := make([]error, len(all))
	var revoking sync.WaitGroup
	for i, s := range all {
		revoking.Go(func() { errs[i] = s.revoke(ctx) })
	}
	revoking.Wait()
	return errors.Join(errs...)
}
