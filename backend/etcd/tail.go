package etcd

import (
	"cmp"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/backend"
)

// A queue of which a request to join is not told all has two further keys, its tails. They
// name the last writer and the last reader that have joined. Each request overwrites the
// tail of its kind, if there is one, in the transaction with which it joins: so the next
// one learns from the answer who is before it, and nobody reads the queue.
//
// A tail that is empty was made since the last request of its kind has joined. The request
// that a tail names may be gone. A tail may be deleted at any time, for it is under the
// lease of whoever wrote it; the next who misses it makes another.

// tail is the key that names the last request of mode m that has joined.
func (k *lockKey) tail(m backend.Mode) string {
	if m == backend.Shared {
		return k.tails + "r"
	}
	return k.tails + "w"
}

// moveTail reads the tails of the requests that conflict with k's, and has the tail of its
// own kind name it.
func (k *lockKey) moveTail(lease clientv3.LeaseID) clientv3.Op {
	own := k.tail(k.mode)
	read := clientv3.OpGet(k.tails, clientv3.WithPrefix())
	if k.mode == backend.Shared {
		read = clientv3.OpGet(k.tail(backend.Exclusive))
	}
	exists := clientv3.Compare(clientv3.CreateRevision(own), ">", 0)
	return clientv3.OpTxn([]clientv3.Cmp{exists}, []clientv3.Op{read, clientv3.OpPut(own, k.own, clientv3.WithLease(lease))}, nil)
}

// readTails reads the answer to moveTail. It returns the last request that conflicts with
// k's, or nobody if that is unknown, and whether all tails that tell of it exist.
func (k *lockKey) readTails(reply *pb.TxnResponse) (last keyVersion, complete bool) {
	if !reply.GetSucceeded() {
		return nobody, false
	}
	found := reply.Responses[0].GetResponseRange().GetKvs()
	want := 2
	if k.mode == backend.Shared {
		want = 1
	}
	if len(found) != want {
		return nobody, false
	}
	newest := slices.MaxFunc(found, func(a, b *mvccpb.KeyValue) int { return cmp.Compare(a.ModRevision, b.ModRevision) })
	if len(newest.Value) == 0 {
		return nobody, true
	}
	return keyVersion{string(newest.Value), newest.ModRevision}, true
}

// makeTails makes the tails that do not exist. If it fails, the next who misses them does
// the same.
func (s *session) makeTails(k *lockKey) {
	ctx, cancel := s.backend.request(s.ctx)
	defer cancel()
	var ops []clientv3.Op
	for _, m := range []backend.Mode{backend.Exclusive, backend.Shared} {
		missing := clientv3.Compare(clientv3.CreateRevision(k.tail(m)), "=", 0)
		ops = append(ops, clientv3.OpTxn([]clientv3.Cmp{missing}, []clientv3.Op{clientv3.OpPut(k.tail(m), "", clientv3.WithLease(s.lease))}, nil))
	}
	_, _ = s.backend.client.Txn(ctx).Then(ops...).Commit()
}

// hasNoTails is true of a queue that nobody has found long. The tail of readers may have
// outlived that of writers: who does not move it misleads nobody, for when there is one of
// writers again, that is the newer one.
func (k *lockKey) hasNoTails() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(k.tail(backend.Exclusive)), "=", 0)
}

// tailsBefore is true while the tails name no request that has joined after revision.
func (k *lockKey) tailsBefore(revision int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(k.tails).WithPrefix(), "<", revision+1)
}

func (k *lockKey) deleteTails() clientv3.Op {
	return clientv3.OpDelete(k.tails, clientv3.WithPrefix())
}
