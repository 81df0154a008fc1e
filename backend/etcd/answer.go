package etcd

import (
	"context"
	"errors"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

// maxAnswer bounds an answer of the server. The longest lists pageKeys keys with labels.
const maxAnswer = 4 << 20

var errBadAnswer = errors.New("the answer does not fit the question")

// checkAnswer refuses an answer about keys that does not fit the question: what a transaction
// was to do is what its answer says to have done.
func checkAnswer(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoke(ctx, method, req, reply, cc, opts...)
	if err != nil || !strings.HasPrefix(method, "/etcdserverpb.KV/") {
		return err
	}
	q, isTxn := req.(*pb.TxnRequest)
	r, hasHeader := reply.(interface{ GetHeader() *pb.ResponseHeader })
	if !hasHeader || r.GetHeader() == nil || isTxn && !answers(q, reply.(*pb.TxnResponse)) {
		return errBadAnswer
	}
	return nil
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
