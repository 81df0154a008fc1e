package etcd

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/backend"
)

// A session is one lease and the keys under it. It lasts until the lease is
// gone, or has not been renewed for so long that it may be: then it is never
// renewed again, so that the cluster drops its keys.
//
// Its sign is a key that is watched: when it is gone, so is the lease.
//
// Its guard is a key that every request which joins a queue demands to be as the
// session knows it. Changing the guard therefore shuts out all requests sent
// before, those too that are still on their way. Most sessions never need to, so
// the guard is not there at first: that costs the server least to see.
type session struct {
	backend *Backend
	lease   clientv3.LeaseID
	id      string // the lease as part of a key
	sign    string
	guard   string
	look    clientv3.Op // at the guard
	granted time.Duration

	ctx    context.Context // ends with the session; its cause says why
	cancel context.CancelCauseFunc
	nudge  chan struct{} // receives when somebody begins to wait

	mu       sync.Mutex
	sent     time.Time // when the last renewal was sent that was answered
	revision int64     // of the guard; zero: it was never put
	keys     int       // under the lease, or about to be
	retired  bool      // nobody finds room in it any more
	claimed  map[string]bool
	spare    *lockKey // in claimed, though nobody uses it: the last one given up
	waiting  int
	holds    map[*hold]struct{}
	renewal  *renewal // under way; nil: none
	lookouts map[string]*lookout
	streams  int                    // how many streams of watches have failed
	released map[string]releasedKey // own ones, by lock and mode
	sweeping bool                   // somebody looks after them
	undone   []releasedKey          // which could not be deleted, for the next sweep
	expiring map[string]bool        // keys that go with a lease of their own; their names are not used again
}

// newSession grants a lease of ttl seconds, puts its sign and watches it.
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
		sign:     b.prefix + "s/" + leaseName(lease.ID),
		guard:    b.prefix + "s/" + leaseName(lease.ID) + "/guard",
		granted:  time.Duration(lease.TTL) * time.Second,
		nudge:    make(chan struct{}, 1),
		sent:     sent,
		claimed:  make(map[string]bool),
		holds:    make(map[*hold]struct{}),
		lookouts: make(map[string]*lookout),
		released: make(map[string]releasedKey),
		expiring: make(map[string]bool),
	}
	s.look = clientv3.OpGet(s.guard, clientv3.WithKeysOnly())
	put, err := s.putSign(ctx)
	if err != nil {
		b.janitor.Do(s.granted, s.revoke)
		return nil, err
	}
	s.ctx, s.cancel = context.WithCancelCause(b.ctx)
	watched := make(chan struct{})
	b.janitor.Go(func(context.Context) { s.watchSign(put.Header.Revision, watched) })
	b.janitor.Go(func(context.Context) { s.keep() })
	select {
	case <-watched:
	case <-ctx.Done(): // locks are safe without the watch, their loss is only seen later
	}
	return s, nil
}

func (b *Backend) grant(ctx context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	ctx, cancel := backend.Bound(ctx, b.limit())
	defer cancel()
	sent := time.Now()
	lease, err := b.client.Grant(ctx, ttl)
	if err != nil {
		return nil, fail(err)
	}
	b.answered(sent)
	return lease, nil
}

func (s *session) putSign(ctx context.Context) (*clientv3.PutResponse, error) {
	ctx, cancel := backend.Bound(ctx, s.backend.limit())
	defer cancel()
	put, err := s.backend.client.Put(ctx, s.sign, "", clientv3.WithLease(s.lease))
	return put, fail(err)
}

// over returns why the session has ended, or nil.
func (s *session) over() error {
	if s.ctx.Err() == nil {
		return nil
	}
	return backend.Fail(backend.ErrLost, context.Cause(s.ctx))
}

// end ends the session and tells its holds. Keys that may be left are deleted
// with the lease.
func (s *session) end(cause error) {
	s.mu.Lock()
	if s.ctx.Err() != nil {
		s.mu.Unlock()
		return
	}
	s.cancel(cause)
	holds, left := s.holds, s.keys > 0 && !s.retired
	s.holds = nil
	s.mu.Unlock()
	s.backend.unshelve(s)
	for h := range holds {
		h.observer.Lost(cause)
	}
	if left && !errors.Is(cause, rpctypes.ErrLeaseNotFound) {
		s.backend.janitor.Do(s.granted, s.revoke)
	}
}

// revoke ends the lease on the server.
func (s *session) revoke(ctx context.Context) error {
	ctx, cancel := backend.Bound(ctx, farewell)
	defer cancel()
	_, err := s.backend.client.Revoke(ctx, s.lease)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return nil
	}
	return fail(err)
}

// adopt makes h a hold of the session, which must not have ended.
func (s *session) adopt(h *hold) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.over(); err != nil {
		return err
	}
	s.holds[h] = struct{}{}
	return nil
}

// disown makes sure that h hears nothing more of the session.
func (s *session) disown(h *hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.holds, h)
}

// reserve makes room for one key, if there is room.
func (s *session) reserve() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys >= maxKeys || s.retired || s.ctx.Err() != nil {
		return false
	}
	s.keys++
	return true
}

// unreserve gives back the room of a key that was not claimed.
func (s *session) unreserve() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys--
}

// giveUp gives back the room of a key that is gone, and the key, unless it is
// burnt: a request to delete it may still be on its way.
func (s *session) giveUp(k *lockKey, burnt bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys--
	if burnt {
		return
	}
	if s.spare != nil {
		delete(s.claimed, s.spare.own)
	}
	s.spare = k
}

// bound returns a context for one exchange with the server on behalf of the
// session. It ends with the session.
func (s *session) bound() (context.Context, context.CancelFunc) { return s.exchange(s.ctx) }

// exchange returns ctx bounded for one exchange with the server.
func (s *session) exchange(ctx context.Context) (context.Context, context.CancelFunc) {
	return backend.Bound(ctx, s.backend.limit())
}
