package etcd

import (
	"context"
	"errors"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/backend"
)

// An acquisition is one call of Acquire. It tries again if the session ends or an
// answer is lost, each time with a new key, until it is known what became of the key
// before.
type acquisition struct {
	backend *Backend
	request backend.Request
	began   time.Time
	queued  bool // behind another client's request
}

// Acquire implements backend.Backend.
func (b *Backend) Acquire(ctx context.Context, r backend.Request) (*backend.Hold, error) {
	if !b.startCall() {
		return nil, backend.ErrClosed
	}
	defer b.calls.Done()
	a := &acquisition{backend: b, request: r, began: time.Now()}
	var pause backend.Backoff
	for {
		h, err := a.try(ctx)
		if err == nil {
			return h, nil
		}
		if err := a.finalError(ctx, err); err != nil {
			return nil, b.at(err)
		}
		b.sleep(ctx, pause.Next())
	}
}

// finalError returns the error of the call after a try has failed with err, or nil if
// another try follows.
func (a *acquisition) finalError(ctx context.Context, err error) error {
	switch {
	case a.backend.ctx.Err() != nil:
		return backend.ErrClosed
	case err == backend.ErrHeld:
		return err
	case ctx.Err() != nil: // err may be its cause, and that of any kind
		return backend.WaitEnded(ctx, a.queued)
	case errors.Is(err, backend.ErrAuth):
		return err
	case errors.Is(err, rpctypes.ErrNoSpace):
		return err // it takes somebody to make room
	case a.queued:
		return nil
	case a.untilTimeout() <= 0, !a.request.Wait && errors.Is(err, errUnknownOutcome):
		return unavailable(err)
	}
	return nil
}

// setQueued tells the request's Observer once that the server has queued the request
// behind another client's.
func (a *acquisition) setQueued() {
	if !a.queued {
		a.queued = true
		a.request.Queued()
	}
}

// untilTimeout is how much longer an acquisition that is not queued waits for a
// cluster that answers nothing.
func (a *acquisition) untilTimeout() time.Duration {
	return backend.FirstAnswer - a.backend.silence(a.began)
}

// try joins the queue with one key, and waits for the grant.
func (a *acquisition) try(ctx context.Context) (*backend.Hold, error) {
	s, err := a.backend.session(ctx, a.request.TTL)
	if err != nil {
		return nil, err
	}
	p := &position{session: s, request: a.request, key: s.claimKey(a.request), untilTimeout: a.untilTimeout}
	if err := p.joinQueue(ctx); err != nil {
		return nil, err
	}
	if p.predecessor != nobody {
		err = p.awaitGrant(ctx, a.setQueued)
	}
	var h *backend.Hold
	if err == nil {
		h, err = p.newHold(ctx)
	}
	if err != nil {
		p.leaveQueue()
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

// A position is one key in the queue of a lock: a request that waits or holds.
type position struct {
	session        *session
	request        backend.Request
	key            *lockKey
	revision       int64      // the key's create revision: the order of the queue
	predecessor    keyVersion // the nearest earlier key that conflicts
	unsorted       bool       // the predecessor may be another one
	hasTails       bool       // the queue has tails
	marked         keyVersion // the key of the writer that has handed the lock over; deleted with the release
	grantedByEvent bool       // and not by an answer
	untilTimeout   func() time.Duration
	seen           int64     // the revision at which the predecessor was that
	provenAt       time.Time // when the request was sent whose answer says so
}

// joinQueue puts the position's key. The end of ctx does not end the request, because
// nobody could tell then what became of the key: it ends the wait for the answer, and
// the key is deleted later. joinQueue uses an answer that arrives just then, because
// it says whether the lock is held.
func (p *position) joinQueue(ctx context.Context) error {
	s := p.session
	free, err := p.awaitSlot(ctx)
	if err != nil { // nothing was sent
		s.freeKey(p.key)
		return err
	}
	joined := make(chan error, 1)
	join := func(context.Context) {
		defer free()
		joined <- s.joinOrCleanUp(ctx, p)
	}
	if !s.backend.janitor.Go(join) {
		free()
		s.freeKey(p.key)
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
	case <-time.After(answerGrace):
		s.backend.janitor.Go(func(context.Context) {
			if <-joined == nil {
				s.cleanUp(p, s.deleteAnswered)
			}
		})
		return context.Cause(ctx)
	}
}

// joinOrCleanUp puts the position's key. If that fails, it makes sure that no key is
// left; where the request waits, it does so in the background, and until then the next
// try may stand behind this key.
func (s *session) joinOrCleanUp(ctx context.Context, p *position) error {
	err := s.join(ctx, p)
	switch {
	case err == nil:
		return nil
	case isRefused(err), errors.Is(err, backend.ErrHeld), !p.request.Wait && s.deleteUnanswered(p) == nil:
		s.freeKey(p.key)
		return err
	case s.ended() != nil: // and the key goes with it
		return s.ended()
	}
	s.backend.janitor.Go(func(context.Context) { s.cleanUp(p, s.deleteUnanswered) })
	return backend.Because(err, errUnknownOutcome)
}

// awaitSlot waits for a slot for as long as the cluster answers others.
func (p *position) awaitSlot(ctx context.Context) (free func(), err error) {
	for {
		limited, cancel := backend.Bound(ctx, p.untilTimeout())
		free, err = p.session.backend.slot(limited)
		cancel()
		if err == nil || ctx.Err() != nil || p.session.ended() != nil || p.untilTimeout() <= 0 {
			return free, err
		}
	}
}

// join puts the position's key.
func (s *session) join(ctx context.Context, p *position) error {
	former := s.takeMarked(p.key)
	reply, err := s.sendJoin(ctx, p, former)
	for err == nil && !reply.Succeeded && p.looksFree(reply) {
		reply, err = s.sendJoin(ctx, p, former)
	}
	if err == nil && !reply.Succeeded {
		err = backend.ErrHeld
	}
	switch {
	case former.lockKey == nil:
	case err == nil:
		s.freeKey(former.lockKey)
	default:
		s.addMarked(former)
	}
	return err
}

// sendJoin sends the request to join once, and reads the answer if it was carried out.
// The request also deletes a former key of this client that is marked.
func (s *session) sendJoin(ctx context.Context, p *position, former markedKey) (*pb.TxnResponse, error) {
	ctx, cancel := s.backend.requestWithin(backend.WithValues(s.ctx, ctx), min(s.backend.timeout(), max(p.untilTimeout(), answerGrace)))
	defer cancel()
	p.provenAt = time.Now()
	answer, err := s.backend.client.Do(ctx, s.joinRequest(p, former))
	if err != nil {
		return nil, s.fail(err)
	}
	s.backend.answered(p.provenAt)
	reply := (*pb.TxnResponse)(answer.Txn())
	if p.request.Wait {
		if !reply.Succeeded { // as if it had been given up
			return nil, fail(errBadAnswer)
		}
		if p.readJoin(reply) {
			s.backend.janitor.Go(func(context.Context) { s.makeTails(p.key) })
		}
		return reply, nil
	}
	if !reply.Succeeded { // there are keys, which may all be marked
		nested := reply.Responses[0].GetResponseTxn()
		nested.Header = reply.Header
		reply = nested
	}
	p.revision, p.seen = reply.Header.Revision, reply.Header.Revision
	return reply, nil
}

// joinRequest returns the transaction that joins the queue, and of TryLock only if
// there is nothing in the queue but marked keys. The range comes before the put, so
// that it does not find the put's key.
//
// The comparison of a whole queue is for short ones: while etcd reads it, all other writes
// of the cluster wait. TryLock looks at some keys of a queue that has tails.
func (s *session) joinRequest(p *position, former markedKey) clientv3.Op {
	k := p.key
	wanted := clientv3.Compare(clientv3.CreateRevision(k.void), "=", 0)
	join := append([]clientv3.Op{
		k.moveTail(s.lease),
		clientv3.OpPut(k.own, live+p.request.Label, clientv3.WithLease(s.lease)),
	}, former.deleteOps()...)
	if p.request.Wait {
		look := clientv3.OpGet(k.rivals(), clientv3.WithPrefix(), clientv3.WithLimit(keysToJoin))
		return clientv3.OpTxn([]clientv3.Cmp{wanted}, append([]clientv3.Op{look}, join...), nil)
	}
	conditions := []clientv3.Cmp{wanted}
	var refuse []clientv3.Op
	if !p.hasTails { // as far as is known
		conditions = append(conditions, k.hasNoTails())
		refuse = []clientv3.Op{clientv3.OpTxn([]clientv3.Cmp{k.hasNoTails()}, nil, []clientv3.Op{
			clientv3.OpGet(k.rivals(), clientv3.WithPrefix(), clientv3.WithLimit(keysToTry)),
		})}
	}
	none := clientv3.Compare(clientv3.CreateRevision(k.rivals()).WithPrefix(), "=", 0)
	free := clientv3.Compare(clientv3.Value(k.rivals()).WithPrefix(), "=", marked)
	return clientv3.OpTxn(slices.Concat(conditions, []clientv3.Cmp{none}), join, []clientv3.Op{
		clientv3.OpTxn(slices.Concat(conditions, []clientv3.Cmp{free}), join, refuse),
	})
}

// looksFree reports whether a queue has tails, and a request that does not wait has found
// no holder among its first keys. It returns true once: then the request is sent again, to
// read the whole queue.
func (p *position) looksFree(refused *pb.TxnResponse) bool {
	if p.request.Wait || p.hasTails {
		return false
	}
	looked := refused.Responses[0].GetResponseTxn()
	p.hasTails = !looked.GetSucceeded()
	return p.hasTails && !slices.ContainsFunc(looked.GetResponses()[0].GetResponseRange().GetKvs(), isLive)
}

// How many keys a request reads in the order of their names: etcd reads the whole queue to
// sort it, and the request to join is one that all other writes of the cluster wait for. If
// there are more keys, the predecessor may not be among them.
const (
	keysToJoin = 32
	keysToTry  = 4 // of a long queue; one that is not marked says that the lock is held
)

// readJoin reads the answer to a request that was carried out. If it was not told of the
// whole queue, its predecessor is whom the tails name, who may be gone by now. readJoin
// reports whether a tail is missing.
func (p *position) readJoin(reply *pb.TxnResponse) (isTailMissing bool) {
	p.revision, p.seen = reply.Header.Revision, reply.Header.Revision
	found, tails := reply.Responses[0].GetResponseRange(), reply.Responses[1].GetResponseTxn()
	p.hasTails = tails.GetSucceeded()
	var nearest *mvccpb.KeyValue
	for _, rival := range found.GetKvs() {
		if nearest == nil || rival.CreateRevision > nearest.CreateRevision {
			nearest = rival
		}
	}
	p.setPredecessor(nearest)
	if !found.GetMore() || nearest == nil {
		return false
	}
	last, complete := p.key.readTails(tails)
	if last != nobody {
		p.predecessor, p.marked, p.seen = last, nobody, last.created
	} else {
		p.predecessor, p.marked, p.unsorted = versionOf(nearest), nobody, true // or a nearer one
	}
	return !complete
}
