package etcd

import (
	"context"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/backend"
)

// Renew implements backend.Renewer.
func (b *Backend) Renew(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	backend.ForEachGroup(holds, sessionOf, func(s *session, group []*backend.Hold) { s.renewAll(ctx, group, report) })
}

func sessionOf(h *backend.Hold) *session { return h.State.(*hold).session }

// renewAll renews the lease once for all holds, and asks whether their keys exist. A
// renewal of shortly before, for other holds, counts as well.
func (s *session) renewAll(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	err := s.ended()
	if err == nil && s.age() > s.granted/6 {
		err = s.renew(ctx)
	}
	if err != nil {
		for _, h := range holds {
			report(h, err)
		}
		return
	}
	sent := s.lastSent()
	for group := range slices.Chunk(holds, maxParts) {
		exists, err := s.findKeys(ctx, group)
		var gone []*backend.Hold
		for i, h := range group {
			switch {
			case err != nil:
				report(h, err)
			case !exists[i]:
				gone = append(gone, h)
			default:
				h.Sent, h.Granted = sent, s.granted
				report(h, nil)
			}
		}
		s.reportGone(ctx, gone, report)
	}
}

// reportGone reports the loss of holds whose keys were deleted.
func (s *session) reportGone(ctx context.Context, gone []*backend.Hold, report func(*backend.Hold, error)) {
	if len(gone) == 0 {
		return
	}
	broken := s.areBroken(ctx, ownOf(gone))
	for i, h := range gone {
		cause := errKeyDeleted
		if broken[i] {
			cause = backend.ErrBroken
		}
		report(h, backend.Fail(backend.ErrLost, cause))
	}
}

// findKeys reports which of the holds still have their keys. If somebody has deleted
// one, the lock is another's although the lease lives.
func (s *session) findKeys(ctx context.Context, holds []*backend.Hold) ([]bool, error) {
	ctx, cancel := s.backend.request(ctx)
	defer cancel()
	exists, err := s.askAll(ctx, ownOf(holds), (*hold).getKey, (*hold).readKey)
	return exists, s.fail(err)
}

// renew renews the lease, by one request for all who need it at the same time.
func (s *session) renew(ctx context.Context) error {
	return s.renewal.do(ctx, &s.backend.janitor, func(context.Context) error {
		sent := time.Now()
		err := s.keepAlive()
		if err == nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.sent = sent
		}
		return err
	})
}

// keepAlive sends one request for the lease. The client library's KeepAliveOnce
// repeats it without a pause while the server is away.
func (s *session) keepAlive() error {
	ctx, cancel := backend.Bound(s.ctx, max(min(s.left()/2, maxTimeout), 10*time.Millisecond))
	defer cancel()
	sent := time.Now()
	leases := pb.NewLeaseClient(s.backend.client.ActiveConnection())
	stream, err := leases.LeaseKeepAlive(clientv3.WithRequireLeader(ctx))
	if err != nil {
		return fail(err)
	}
	if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(s.lease)}); err != nil {
		return fail(err)
	}
	reply, err := stream.Recv()
	if err == nil {
		s.backend.answered(sent)
	}
	if err == nil && reply.TTL <= 0 {
		err = rpctypes.ErrLeaseNotFound
		s.end(err)
	}
	return fail(err)
}

// tend renews the lease while requests wait, as the client renews holds only, and has marked
// keys deleted. It ends the session when the lease may have run out.
func (s *session) tend() {
	swept := time.Now()
	for backend.Sleep(s.ctx, max(min(s.granted/24, s.left()/2), time.Millisecond)) {
		if s.left() <= 0 {
			s.end(errNotRenewed)
			return
		}
		if s.waiters.Load() > 0 {
			s.renewForWaiters()
		}
		if time.Since(swept) >= s.granted/3 {
			swept = time.Now()
			s.backend.janitor.Go(func(context.Context) { s.sweepMarked() })
		}
	}
}

// renewForWaiters renews the lease when a third of it is over.
func (s *session) renewForWaiters() {
	_ = s.renewIfShort(s.ctx, s.granted*2/3) // it is tried again
}

// renewIfShort renews the lease if less than need is left of it.
func (s *session) renewIfShort(ctx context.Context, need time.Duration) error {
	if s.granted-s.age() < need {
		return s.renew(ctx)
	}
	return nil
}

func (s *session) lastSent() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent
}

// age is the time since the last successful renewal was sent.
func (s *session) age() time.Duration { return backend.Since(s.lastSent()) }

// left is how long the lease certainly lasts.
func (s *session) left() time.Duration {
	return s.granted - backend.Margin(s.granted) - s.age()
}

// getKey returns the request that asks for the hold's key, or for that of its
// downgrade. While nobody is known to wait, it asks for whoever waits too.
func (h *hold) getKey() clientv3.Op {
	own := clientv3.OpGet(h.key.own)
	switch {
	case h.downgraded.Load():
		return clientv3.OpTxn([]clientv3.Cmp{h.keyExists()}, []clientv3.Op{own}, []clientv3.Op{clientv3.OpGet(h.key.downgraded())})
	case h.wanted.Load():
		return own
	}
	next := clientv3.OpGet(h.key.rivals(), clientv3.WithPrefix(), clientv3.WithMinCreateRev(h.revision+1), clientv3.WithLimit(1), clientv3.WithKeysOnly())
	return clientv3.OpTxn(nil, []clientv3.Op{own, next}, nil)
}

// readKey reports whether the answer to getKey is the key of the hold, and not a later
// one of that name. It tells the hold's owner if somebody waits.
func (h *hold) readKey(r *pb.ResponseOp) bool {
	kept, next := r.GetResponseRange(), (*pb.RangeResponse)(nil)
	if nested := r.GetResponseTxn().GetResponses(); len(nested) > 0 {
		kept = nested[0].GetResponseRange()
		if len(nested) > 1 {
			next = nested[1].GetResponseRange()
		}
	}
	kv := first(kept)
	switch {
	case kv == nil:
		return false
	case kv.CreateRevision != h.revision || isMarked(kv):
		return h.isOwnDowngrade(kept)
	}
	if first(next) != nil && !h.wanted.Swap(true) && !h.downgraded.Load() {
		h.request.Wanted()
	}
	return true
}
