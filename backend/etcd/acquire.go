package etcd

import (
	"context"
	"errors"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
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
	queued  bool // the server has queued it behind another
}

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
			return nil, b.at(err)
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
	case a.patience() <= 0, !a.request.Wait && errors.Is(err, errUnsettled):
		return unavailable(err)
	}
	return nil
}

// isQueued notes that the server has queued the request behind another's.
func (a *acquisition) isQueued() {
	if !a.queued {
		a.queued = true
		a.request.Queued()
	}
}

// patience is how much longer an acquisition that is not queued waits for a cluster
// that answers nothing.
func (a *acquisition) patience() time.Duration {
	return backend.FirstAnswer - a.backend.silence(a.began)
}

// attempt asks once, and waits if it is queued.
func (a *acquisition) attempt(ctx context.Context) (*backend.Hold, error) {
	s, err := a.backend.session(ctx, a.request.TTL)
	if err != nil {
		return nil, err
	}
	p := &place{session: s, request: a.request, key: s.claim(a.request), patience: a.patience}
	if err := p.join(ctx); err != nil {
		return nil, err
	}
	if p.ahead != "" {
		err = p.wait(ctx, a.isQueued)
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
	revision int64   // the key's create revision: the order of the queue
	ahead    string  // the nearest key below that conflicts; empty: none
	crowded  bool    // ahead is not sure to be the nearest
	passed   seenKey // the released key that it was behind
	told     bool    // an event has said that nothing is ahead
	patience func() time.Duration
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
// the background where the request waits: the next attempt may stand behind this
// one's key until then.
func (s *session) putSettled(p *place) error {
	err := s.put(p)
	switch {
	case err == nil:
		return nil
	case refused(err), errors.Is(err, backend.ErrHeld), !p.request.Wait && s.settle(p) == nil:
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
	former := s.takeReleased(p.key)
	for {
		if err := s.over(); err != nil {
			return err
		}
		guard := s.guardRevision()
		reply, err := s.ask(p, former, guard)
		if err == nil && reply.Succeeded {
			if former.lockKey != nil {
				s.giveUp(former.lockKey, false)
			}
			return nil
		}
		if err == nil {
			var unmoved bool
			if unmoved, err = s.turnedDown(reply, guard); err == nil && !unmoved {
				continue
			}
		}
		if former.lockKey != nil {
			s.leaveReleased(former)
		}
		if err == nil {
			err = backend.ErrHeld
		}
		return err
	}
}

// ask sends the request to join once, and takes the answer if it was carried out.
// A former key of the client that is marked as released goes with it.
func (s *session) ask(p *place, former releasedKey, guard int64) (*pb.TxnResponse, error) {
	ctx, cancel := backend.Bound(s.ctx, min(s.backend.limit(), max(p.patience(), grace)))
	defer cancel()
	p.proved = time.Now()
	answer, err := s.backend.client.Do(ctx, s.asking(p, former, guard))
	if ctx.Err() != nil {
		s.backend.roundTrip.Late()
	}
	if err != nil {
		return nil, s.failed(err)
	}
	s.backend.answered(p.proved)
	reply := (*pb.TxnResponse)(answer.Txn())
	if p.request.Wait {
		if reply.Succeeded {
			p.joined(reply)
		}
		return reply, nil
	}
	if !reply.Succeeded { // there are keys, which may all be released
		nested := reply.Responses[0].GetResponseTxn()
		nested.Header = reply.Header
		reply = nested
	}
	p.revision, p.seen = reply.Header.Revision, reply.Header.Revision
	return reply, nil
}

// turnedDown finds out why a request that demanded guard was not carried out, and
// reports whether the guard is not the reason. Who only tries learns it with the
// answer; who waits has to ask, because that is rare.
func (s *session) turnedDown(reply *pb.TxnResponse, guard int64) (unmoved bool, err error) {
	if len(reply.Responses) > 0 {
		return s.guardSeen(reply.Responses[0].GetResponseRange(), guard)
	}
	ctx, cancel := s.bound()
	defer cancel()
	answer, err := s.backend.client.Do(ctx, s.look)
	if err != nil {
		return false, s.failed(err)
	}
	return s.guardSeen((*pb.RangeResponse)(answer.Get()), guard)
}

// asking is the transaction that joins the queue, or that does so only if the
// lock is free, which it is beside released keys, too. The range comes before the
// put, so that it does not find it.
func (s *session) asking(p *place, former releasedKey, guard int64) clientv3.Op {
	k, unmoved := p.key, s.unmoved(guard)
	join := append([]clientv3.Op{clientv3.OpPut(k.own, live+p.request.Label, clientv3.WithLease(s.lease))}, former.tidy()...)
	if p.request.Wait {
		look := clientv3.OpGet(k.rivals(), some...)
		return clientv3.OpTxn([]clientv3.Cmp{unmoved}, append([]clientv3.Op{look}, join...), nil)
	}
	none := clientv3.Compare(clientv3.CreateRevision(k.rivals()).WithPrefix(), "=", 0)
	free := clientv3.Compare(clientv3.Value(k.rivals()).WithPrefix(), "=", released)
	return clientv3.OpTxn([]clientv3.Cmp{unmoved, none}, join, []clientv3.Op{
		clientv3.OpTxn([]clientv3.Cmp{unmoved, free}, join, []clientv3.Op{s.look}),
	})
}

// some selects keys with a prefix, in no useful order: etcd sorts also where there
// is nothing to sort, which takes longer than all else that it does for a lock
// that is free. Where there are more the nearest rival may not be among them.
var some = []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithLimit(100)}

// joined takes the answer to a request that was carried out.
func (p *place) joined(reply *pb.TxnResponse) {
	p.revision, p.seen = reply.Header.Revision, reply.Header.Revision
	found := reply.Responses[0].GetResponseRange()
	var nearest *mvccpb.KeyValue
	for _, rival := range found.GetKvs() {
		if nearest == nil || rival.CreateRevision > nearest.CreateRevision {
			nearest = rival
		}
	}
	p.behind(nearest)
	if p.crowded = found.GetMore() && nearest != nil; p.crowded {
		p.ahead = string(nearest.Key) // or another one, to be looked for
	}
}

// behindOwn reports whether the key ahead is one of this client, which is about to
// delete it: no client asks for a lock that it has. One that was left to expire stands
// for as long as it should.
func (p *place) behindOwn() bool {
	if p.session.isLeft(p.ahead) {
		return false
	}
	key := strings.TrimPrefix(p.ahead, p.key.dir)
	return strings.HasPrefix(key, writers+p.session.id) || strings.HasPrefix(key, readers+p.session.id)
}

// behind takes the nearest key that conflicts, nil if there is none. Behind one that
// was released there is no other: a writer had the lock.
func (p *place) behind(rival *mvccpb.KeyValue) {
	p.ahead, p.passed = "", seenKey{}
	switch {
	case rival == nil:
	case isReleased(rival):
		p.passed = seen(rival)
	default:
		p.ahead = string(rival.Key)
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
