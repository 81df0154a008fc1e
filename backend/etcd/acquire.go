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
	ctx, end, err := b.calls.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
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
		backend.Sleep(ctx, pause.Next())
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
	p.thorough = a.request.Wait && s.foundTails.Load() // TryLock looks first: its thorough request reads a long queue
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

// A position is one key in the queue of a lock: a request that waits or holds.
type position struct {
	session        *session
	request        backend.Request
	key            *lockKey
	revision       int64      // the key's create revision: the order of the queue
	predecessor    keyVersion // the nearest earlier key that conflicts
	unsorted       bool       // the predecessor may be another one
	thorough       bool       // the request that joins takes a queue as it is
	hasTails       bool       // the queue has tails
	marked         keyVersion // the key of the writer that has handed the lock over; deleted with the release
	grantedByEvent bool       // and not by an answer
	untilTimeout   func() time.Duration
	seen           int64     // the revision at which the predecessor was that
	provenAt       time.Time // when the request was sent whose answer says so
}

// joinQueue puts the position's key. If that fails, it makes sure that no key is left;
// where the request waits or ctx ends, it does so in the background, and until then
// the next try may stand behind this key.
func (p *position) joinQueue(ctx context.Context) error {
	s := p.session
	free, err := p.awaitSlot(ctx)
	if err != nil { // nothing was sent
		s.freeKey(p.key)
		return err
	}
	defer free()
	err = s.join(ctx, p)
	switch {
	case err == nil:
		return nil
	case isRefused(err), errors.Is(err, backend.ErrHeld), !p.request.Wait && ctx.Err() == nil && s.deleteUnanswered(ctx, p) == nil:
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

// join puts the position's key, by a thorough request if the queue asks for one.
func (s *session) join(ctx context.Context, p *position) error {
	former := s.takeMarked(p.key)
	reply, err := s.sendJoin(ctx, p, former)
	if err == nil && p.mayJoin(reply) {
		p.thorough = true
		reply, err = s.sendJoin(ctx, p, former)
	}
	if err == nil {
		err = s.endJoin(p, reply)
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

// sendJoin sends the request to join once. The request also deletes a former key of this
// client that is marked. When caller ends there is still some time for an answer that is on
// its way: it says whether the lock is held, and what became of the key.
func (s *session) sendJoin(caller context.Context, p *position, former markedKey) (*pb.TxnResponse, error) {
	ctx, cancel := backend.Bound(backend.WithValues(s.ctx, caller), min(s.backend.timeout(), max(p.untilTimeout(), answerGrace)))
	defer cancel()
	defer context.AfterFunc(caller, func() { time.AfterFunc(answerGrace, cancel) })()
	p.provenAt = time.Now()
	answer, err := s.backend.client.Do(ctx, s.joinRequest(p, former))
	if ctx.Err() == context.DeadlineExceeded {
		s.backend.late()
	}
	if err != nil {
		return nil, s.fail(err)
	}
	s.backend.answered(p.provenAt)
	return (*pb.TxnResponse)(answer.Txn()), nil
}

// joinRequest returns the transaction that joins the queue, and of TryLock only if
// there is nothing in the queue but marked keys. The range comes before the put, so
// that it does not find the put's key.
//
// The first request is for a queue without tails, and for TryLock an empty one: nearly all
// locks have that, and what more a transaction says costs time here and on the server. If
// it is not carried out for that reason, a thorough one follows. The comparison of a whole
// queue is for short ones: while etcd reads it, all other writes of the cluster wait.
func (s *session) joinRequest(p *position, former markedKey) clientv3.Op {
	k := p.key
	wanted := clientv3.Compare(clientv3.CreateRevision(k.void), "=", 0)
	conditions := []clientv3.Cmp{wanted}
	var join []clientv3.Op
	if p.thorough {
		join = append(join, k.moveTail(s.lease))
	} else {
		conditions = append(conditions, k.hasNoTails())
	}
	if p.request.Wait {
		join = append(join, k.look(keysToJoin))
	}
	join = append(join, clientv3.OpPut(k.own, live+p.request.Label, clientv3.WithLease(s.lease)))
	join = append(join, former.deleteOps()...)
	if p.request.Wait {
		return clientv3.OpTxn(conditions, join, nil)
	}
	refuse := k.look(keysToTry)
	if p.thorough {
		refuse = clientv3.OpTxn(append(conditions, k.hasOnlyMarked()), join, nil)
	}
	return clientv3.OpTxn(append(conditions, k.hasNoKeys()), join, []clientv3.Op{refuse})
}

// mayJoin reports whether a thorough request may join where this one has not.
func (p *position) mayJoin(answer *pb.TxnResponse) bool {
	if answer.Succeeded || p.thorough {
		return false
	}
	return p.request.Wait || !slices.ContainsFunc(answer.Responses[0].GetResponseRange().GetKvs(), isLive)
}

// How many keys a request reads in the order of their names: etcd reads the whole queue to
// sort it, and the request to join is one that all other writes of the cluster wait for. If
// there are more keys, the predecessor may not be among them.
const (
	keysToJoin = 32
	keysToTry  = 4 // one that is not marked says that the lock is held
)

// endJoin reads the answer to the last request to join.
func (s *session) endJoin(p *position, answer *pb.TxnResponse) error {
	joined := answer
	if !answer.Succeeded && len(answer.Responses) > 0 {
		joined = answer.Responses[0].GetResponseTxn()
	}
	switch {
	case !joined.GetSucceeded() && p.request.Wait: // as if it had been given up
		return fail(errBadAnswer)
	case !joined.GetSucceeded():
		return backend.ErrHeld
	}
	if p.readJoin(answer.Header.Revision, joined.Responses) {
		s.backend.janitor.Go(func(context.Context) { s.makeTails(p.key) })
	}
	return nil
}

// readJoin reads what the request that has joined at revision has found. If it was not told
// of the whole queue, its predecessor is whom the tails name, who may be gone by now.
// readJoin reports whether a tail is missing.
func (p *position) readJoin(revision int64, parts []*pb.ResponseOp) (isTailMissing bool) {
	p.revision, p.seen = revision, revision
	var tails *pb.TxnResponse
	if p.thorough {
		tails, parts = parts[0].GetResponseTxn(), parts[1:]
	}
	p.hasTails = tails.GetSucceeded()
	p.session.foundTails.Store(p.hasTails)
	if !p.request.Wait {
		return false
	}
	found := parts[0].GetResponseRange()
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
