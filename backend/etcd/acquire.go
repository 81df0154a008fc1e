package etcd

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/backend"
)

// An acquisition is one call of Acquire. It makes several attempts if the
// session ends or an answer is lost, each with a key of its own until what
// became of the one before is known.
type acquisition struct {
	backend *Backend
	request backend.Request
	began   time.Time
	queued  bool // the server has said so
}

// unansweredLimit is when an acquisition that the server has not queued yet
// makes no further attempt.
const unansweredLimit = 15 * time.Second

// Acquire implements backend.Backend.
func (b *Backend) Acquire(ctx context.Context, r backend.Request) (*backend.Hold, error) {
	if !b.begin() {
		return nil, backend.ErrClosed
	}
	defer b.calls.Done()
	a := &acquisition{backend: b, request: r, began: time.Now()}
	var pause backend.Backoff
	for {
		h, err := a.attempt(ctx)
		if err == nil {
			return h, nil
		}
		if err := a.final(ctx, err); err != nil {
			return nil, err
		}
		b.sleep(ctx, pause.Next())
	}
}

// final returns the error of the call after an attempt has failed with err, or
// nil if there is to be another attempt.
func (a *acquisition) final(ctx context.Context, err error) error {
	switch {
	case a.backend.ctx.Err() != nil:
		return backend.ErrClosed
	case errors.Is(err, backend.ErrHeld), errors.Is(err, backend.ErrAuth):
		return err
	case errors.Is(err, rpctypes.ErrNoSpace):
		return err // it takes somebody to make room
	case ctx.Err() != nil:
		return backend.WaitEnded(ctx, a.queued)
	case a.queued:
		return nil
	case time.Since(a.began) > unansweredLimit, !a.request.Wait && errors.Is(err, errUnsettled):
		return unavailable(err)
	}
	return nil
}

// attempt asks once, and waits if it is queued.
func (a *acquisition) attempt(ctx context.Context) (*backend.Hold, error) {
	s, err := a.backend.session(ctx, a.request.TTL)
	if err != nil {
		return nil, err
	}
	p := &place{session: s, request: a.request, key: s.claim(a.request)}
	if err := p.join(ctx); err != nil {
		return nil, err
	}
	if p.ahead != "" {
		a.queued = true
		a.request.Queued()
		err = p.wait(ctx)
	}
	var h *backend.Hold
	if err == nil {
		h, err = p.hold(ctx)
	}
	if err != nil {
		p.leave()
	}
	return h, err
}

// sleep waits for d, until ctx is done, or until the backend is closed.
func (b *Backend) sleep(ctx context.Context, d time.Duration) {
	ctx, cancel := backend.Bound(ctx, d)
	defer cancel()
	defer context.AfterFunc(b.ctx, cancel)()
	<-ctx.Done()
}

// A place is a request's place in the queue of a lock, or its hold.
type place struct {
	session  *session
	request  backend.Request
	key      lockKey
	revision int64     // the key's create revision: the order of the queue
	ahead    string    // the nearest key below that conflicts; empty: none
	seen     int64     // the revision at which it was
	proved   time.Time // when the request was sent that found so
	burnt    bool      // the key must not be used again
}

// join puts the request's key. The caller's context does not end that, because
// nobody could tell then what had become of the key; it only ends the wait for
// it, and the key is removed later. An answer that arrives just then is taken:
// it says whether the lock is held.
func (p *place) join(ctx context.Context) error {
	s := p.session
	if ctx.Done() == nil { // nothing to wait for but the answer
		return s.putSettled(p)
	}
	joined := make(chan error, 1)
	if !s.backend.janitor.Go(func(context.Context) { joined <- s.putSettled(p) }) {
		s.giveUp(p.key, p.burnt)
		return backend.ErrClosed
	}
	select {
	case err := <-joined:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-joined:
		return err
	case <-time.After(grace):
		s.backend.janitor.Go(func(context.Context) {
			if <-joined == nil {
				s.cleanUp(p, s.remove)
			}
		})
		return context.Cause(ctx)
	}
}

// putSettled puts the key. If that fails it makes sure that nothing is left, in
// the background if need be.
func (s *session) putSettled(p *place) error {
	err := s.put(p)
	switch {
	case err == nil:
		return nil
	case refused(err), errors.Is(err, backend.ErrHeld), s.settle(p) == nil:
		s.giveUp(p.key, p.burnt)
		return err
	case s.over() != nil: // and the key goes with it
		return s.over()
	}
	s.backend.janitor.Go(func(context.Context) { s.cleanUp(p, s.settle) })
	return errors.Join(err, errUnsettled)
}

// put puts the key, again if the guard has moved meanwhile.
func (s *session) put(p *place) error {
	for {
		if err := s.over(); err != nil {
			return err
		}
		guard := s.guardRevision()
		ctx, cancel := s.bound()
		p.proved = time.Now()
		reply, err := s.request(ctx, p, guard).Commit()
		cancel()
		if err != nil {
			return s.failed(err)
		}
		if reply.Succeeded {
			p.joined(reply)
			return nil
		}
		if unmoved, err := s.guardSeen(reply, guard); err != nil {
			return err
		} else if unmoved {
			return backend.ErrHeld
		}
	}
}

// request is the transaction that joins the queue, or that does so only if the
// lock is free. The range comes before the put, so that it does not find it.
func (s *session) request(ctx context.Context, p *place, guard int64) clientv3.Txn {
	unmoved := clientv3.Compare(clientv3.ModRevision(s.guard), "=", guard)
	put := clientv3.OpPut(p.key.own(), p.request.Label, clientv3.WithLease(s.lease))
	look := clientv3.OpGet(s.guard, clientv3.WithKeysOnly())
	txn := s.backend.client.Txn(ctx)
	if p.request.Wait {
		return txn.If(unmoved).Then(clientv3.OpGet(p.key.rivals(), newest...), put).Else(look)
	}
	free := clientv3.Compare(clientv3.CreateRevision(p.key.rivals()).WithPrefix(), "=", 0)
	return txn.If(unmoved, free).Then(put).Else(look)
}

// newest selects the key that was created last of those with a prefix.
var newest = append(clientv3.WithLastCreate(), clientv3.WithKeysOnly())

// joined takes the answer to a request that was carried out.
func (p *place) joined(reply *clientv3.TxnResponse) {
	p.revision, p.seen = reply.Header.Revision, reply.Header.Revision
	p.ahead = firstKey(reply.Responses[0].GetResponseRange())
}

// guardSeen reports whether the guard is as the request assumed.
func (s *session) guardSeen(reply *clientv3.TxnResponse, guard int64) (bool, error) {
	found := reply.Responses[0].GetResponseRange().Kvs
	if len(found) == 0 {
		s.end(errRevoked)
		return false, s.over()
	}
	s.moveGuard(found[0].ModRevision)
	return found[0].ModRevision == guard, nil
}

// failed gives err its kind, and ends the session if it says that the lease is
// gone.
func (s *session) failed(err error) error {
	err = fail(err)
	if errors.Is(err, backend.ErrLost) {
		s.end(err)
	}
	return err
}

// leave gives up the place in the background.
func (p *place) leave() {
	s := p.session
	s.backend.janitor.Go(func(context.Context) { s.cleanUp(p, s.remove) })
}
