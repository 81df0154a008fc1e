package etcd

import (
	"context"
	"strconv"

	"github.com/dlock-go/dlock/backend"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Downgrade implements backend.Downgrader: one transaction replaces the key by
// another, which readers pass and writers do not.
func (b *Backend) Downgrade(ctx context.Context, h *backend.Hold) error {
	own := h.State.(*hold)
	own.downgraded.Store(true)
	return own.explainLoss(ctx, repeat(ctx, h.TTL, own.downgrade))
}

func (h *hold) downgrade(ctx context.Context) error {
	s := h.session
	if err := s.ended(); err != nil {
		return err
	}
	ctx, cancel := s.backend.request(ctx)
	defer cancel()
	reply, err := s.backend.client.Txn(ctx).
		If(h.keyExists()).
		Then(clientv3.OpDelete(h.key.own), clientv3.OpPut(h.key.downgraded(), h.downgradedValue(), clientv3.WithLease(s.lease))).
		Else(clientv3.OpGet(h.key.downgraded())).
		Commit()
	switch {
	case err != nil:
		return s.fail(err)
	case reply.Succeeded || h.isOwnDowngrade(reply.Responses[0].GetResponseRange()):
		return nil
	}
	return backend.Fail(backend.ErrLost, errKeyDeleted)
}

// downgradedValue is the value of the key of a hold that was downgraded.
func (h *hold) downgradedValue() string {
	return strconv.FormatInt(h.revision, 10) + live + h.request.Label
}

// isOwnDowngrade reports whether the key is that of an earlier try of the downgrade,
// which was carried out.
func (h *hold) isOwnDowngrade(found *pb.RangeResponse) bool {
	return len(found.GetKvs()) > 0 && string(found.Kvs[0].Value) == h.downgradedValue()
}
