package etcd

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/backend"
)

// Expire implements backend.Expirer: the key moves to a lease of its own, which
// nobody renews. Such a lease is of whole seconds, and of at least what the cluster
// grants.
func (b *Backend) Expire(ctx context.Context, h *backend.Hold, d time.Duration) error {
	own := h.State.(*hold)
	own.session.disown(own)
	err := repeat(ctx, h.TTL, func(ctx context.Context) error { return own.moveToLease(ctx, d) })
	if err == nil {
		own.session.leaveToExpire(own)
	}
	return err
}

// leaveToExpire notes that the hold's key goes with a lease of its own.
func (s *session) leaveToExpire(h *hold) {
	s.giveUp(h.key, true)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expiring[h.key.own], s.expiring[h.key.downgraded()] = true, true
}

// isLeft reports whether the key is one that was left to expire.
func (s *session) isLeft(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.expiring[key]
}

func (h *hold) moveToLease(ctx context.Context, d time.Duration) error {
	s := h.session
	if err := s.over(); err != nil {
		return err
	}
	lease, err := s.backend.grant(ctx, seconds(d))
	if err != nil {
		return err
	}
	ctx, cancel := s.exchange(ctx)
	defer cancel()
	move := func(key string) clientv3.Op {
		return clientv3.OpPut(key, "", clientv3.WithIgnoreValue(), clientv3.WithLease(lease.ID))
	}
	former := clientv3.Compare(clientv3.Value(h.key.downgraded()), "=", h.mark())
	reply, err := s.backend.client.Txn(ctx).
		If(h.stands()).
		Then(move(h.key.own)).
		Else(clientv3.OpTxn([]clientv3.Cmp{former}, []clientv3.Op{move(h.key.downgraded())}, nil)).
		Commit()
	switch {
	case err != nil:
		return s.failed(err)
	case reply.Succeeded || reply.Responses[0].GetResponseTxn().Succeeded:
		return nil
	}
	return backend.Fail(backend.ErrLost, errKeyDeleted)
}

// seconds rounds d up.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
