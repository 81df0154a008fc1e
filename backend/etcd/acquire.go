package etcd

import (
	"context"
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
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
	key      *lockKey
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
		p.proved = time.Now()
		answer, err := s.backend.client.Do(s.shared(), s.asking(p.key, p.request, guard))
		if err != nil {
			return s.failed(err)
		}
		reply := answer.Txn()
		if reply.Succeeded {
			p.joined(reply)
			return nil
		}
		if unmoved, err := s.turnedDown(reply, guard); err != nil {
			return err
		} else if unmoved {
			return backend.ErrHeld
		}
	}
}

// turnedDown finds out why a request that demanded guard was not carried out, and
// reports whether the guard is not the reason. Who only tries learns it with the
// answer; who waits has to ask, because that is rare.
func (s *session) turnedDown(reply *clientv3.TxnResponse, guard int64) (unmoved bool, err error) {
	if len(reply.Responses) > 0 {
		return s.guardSeen(reply.Responses[0].GetResponseRange(), guard)
	}
	answer, err := s.backend.client.Do(s.shared(), s.look)
	if err != nil {
		return false, s.failed(err)
	}
	return s.guardSeen((*pb.RangeResponse)(answer.Get()), guard)
}

// asking is the transaction that joins the queue, or that does so only if the
// lock is free. The range comes before the put, so that it does not find it.
func (s *session) asking(k *lockKey, r backend.Request, guard int64) clientv3.Op {
	if k.guard == guard && k.wait == r.Wait && k.label == r.Label {
		return k.asking
	}
	put := clientv3.OpPut(k.own, r.Label, clientv3.WithLease(s.lease))
	unmoved := s.unmoved(guard)
	if r.Wait {
		k.asking = clientv3.OpTxn([]clientv3.Cmp{unmoved}, []clientv3.Op{clientv3.OpGet(k.rivals(), some...), put}, nil)
	} else {
		free := clientv3.Compare(clientv3.CreateRevision(k.rivals()).WithPrefix(), "=", 0)
		k.asking = clientv3.OpTxn([]clientv3.Cmp{unmoved, free}, []clientv3.Op{put}, []clientv3.Op{s.look})
	}
	k.guard, k.wait, k.label = guard, r.Wait, r.Label
	return k.asking
}

// some selects keys with a prefix, in no useful order: etcd sorts also where there
// is nothing to sort, which takes longer than all else that it does for a lock
// that is free. Where there are more it is not the nearest rival that is found;
// when that has gone the request looks for it.
var some = []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(100)}

// joined takes the answer to a request that was carried out.
func (p *place) joined(reply *clientv3.TxnResponse) {
	p.revision, p.seen = reply.Header.Revision, reply.Header.Revision
	var nearest int64
	for _, rival := range reply.Responses[0].GetResponseRange().GetKvs() {
		if rival.CreateRevision > nearest {
			nearest, p.ahead = rival.CreateRevision, string(rival.Key)
		}
	}
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
