package etcd

import (
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// maxAnswer bounds an answer of the server. The longest lists pageKeys keys with labels.
const maxAnswer = 4 << 20

var errBadAnswer = errors.New("the answer does not fit the question")

// newKV returns the client library's part that reads and writes keys, as a checkedKV:
// what a transaction was to do is what its answer says to have done.
func newKV(c *clientv3.Client) clientv3.KV {
	return clientv3.NewKVFromKVClient(checkedKV{clientv3.RetryKVClient(c)}, c)
}

// A checkedKV refuses answers that do not fit the question.
type checkedKV struct{ pb.KVClient }

// Range implements pb.KVClient.
func (f checkedKV) Range(ctx context.Context, q *pb.RangeRequest, opts ...grpc.CallOption) (*pb.RangeResponse, error) {
	r, err := f.KVClient.Range(ctx, q, opts...)
	if err == nil && r.GetHeader() == nil {
		return nil, errBadAnswer
	}
	return r, err
}

// Put implements pb.KVClient.
func (f checkedKV) Put(ctx context.Context, q *pb.PutRequest, opts ...grpc.CallOption) (*pb.PutResponse, error) {
	r, err := f.KVClient.Put(ctx, q, opts...)
	if err == nil && r.GetHeader() == nil {
		return nil, errBadAnswer
	}
	return r, err
}

// Txn implements pb.KVClient.
func (f checkedKV) Txn(ctx context.Context, q *pb.TxnRequest, opts ...grpc.CallOption) (*pb.TxnResponse, error) {
	r, err := f.KVClient.Txn(ctx, q, opts...)
	if err == nil && (r.GetHeader() == nil || !answers(q, r)) {
		return nil, errBadAnswer
	}
	return r, err
}

// answers reports whether r says what became of each part of q.
func answers(q *pb.TxnRequest, r *pb.TxnResponse) bool {
	if r == nil {
		return false
	}
	parts := q.GetFailure()
	if r.Succeeded {
		parts = q.GetSuccess()
	}
	if len(r.Responses) != len(parts) {
		return false
	}
	for i, part := range parts {
		if !answersPart(part, r.Responses[i]) {
			return false
		}
	}
	return true
}

func answersPart(q *pb.RequestOp, r *pb.ResponseOp) bool {
	switch {
	case q.GetRequestRange() != nil:
		return r.GetResponseRange() != nil
	case q.GetRequestPut() != nil:
		return r.GetResponsePut() != nil
	case q.GetRequestDeleteRange() != nil:
		return r.GetResponseDeleteRange() != nil
	}
	return answers(q.GetRequestTxn(), r.GetResponseTxn())
}
