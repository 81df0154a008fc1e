package etcd

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/dlock-go/dlock/backend"
)

// A liar answers each transaction with the same, and all else as if it were an etcd.
type liar struct {
	pb.UnimplementedKVServer
	pb.UnimplementedLeaseServer
	says *pb.TxnResponse
}

func (l liar) Txn(context.Context, *pb.TxnRequest) (*pb.TxnResponse, error) { return l.says, nil }

func (liar) Put(context.Context, *pb.PutRequest) (*pb.PutResponse, error) {
	return &pb.PutResponse{Header: &pb.ResponseHeader{Revision: 1}}, nil
}

func (liar) Range(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
	return &pb.RangeResponse{}, nil
}

func (liar) LeaseGrant(_ context.Context, q *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	return &pb.LeaseGrantResponse{Header: &pb.ResponseHeader{}, ID: 7, TTL: q.TTL}, nil
}

// TestServerThatLies has a server answer transactions with what fits none of them.
func TestServerThatLies(t *testing.T) {
	t.Parallel()
	header := &pb.ResponseHeader{Revision: 5}
	none := &pb.ResponseOp{}
	put := &pb.ResponseOp{Response: &pb.ResponseOp_ResponsePut{ResponsePut: &pb.PutResponse{}}}
	nested := &pb.ResponseOp{Response: &pb.ResponseOp_ResponseTxn{ResponseTxn: &pb.TxnResponse{Succeeded: true}}}
	for what, says := range map[string]*pb.TxnResponse{
		"nothing":          {},
		"no parts":         {Header: header, Succeeded: true},
		"no parts, failed": {Header: header},
		"no header":        {Succeeded: true, Responses: []*pb.ResponseOp{put}},
		"empty parts":      {Header: header, Succeeded: true, Responses: []*pb.ResponseOp{none, none}},
		"another kind":     {Header: header, Succeeded: true, Responses: []*pb.ResponseOp{nested}},
		"failed, empty":    {Header: header, Responses: []*pb.ResponseOp{none}},
		"nested, empty":    {Header: header, Responses: []*pb.ResponseOp{nested}},
		"too long":         {Header: header, Succeeded: true, Responses: []*pb.ResponseOp{list(maxAnswer), put}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			s := grpc.NewServer()
			pb.RegisterKVServer(s, liar{says: says})
			pb.RegisterLeaseServer(s, liar{})
			go func() { _ = s.Serve(listener) }()
			defer s.Stop()
			u, err := backend.ParseURL("etcd://" + listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			b, err := open(t.Context(), backend.Config{URL: u, TTL: 10 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close(t.Context())
			for _, mode := range []backend.Mode{backend.Exclusive, backend.Shared} {
				r := backend.Request{Name: "a", ID: backend.ID{Client: "c", Seq: 1}, Mode: mode, TTL: 10 * time.Second}
				if h, err := b.Acquire(t.Context(), r); !errors.Is(err, backend.ErrUnavailable) {
					t.Errorf("got %v, %v", h, err)
				}
			}
		})
	}
}

// list is an answer with a key of so many bytes.
func list(n int) *pb.ResponseOp {
	return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{ResponseRange: &pb.RangeResponse{
		Kvs: []*mvccpb.KeyValue{{Key: make([]byte, n)}},
	}}}
}

// FuzzAnswers has a server answer with any message. One that fits the question is taken.
func FuzzAnswers(f *testing.F) {
	look := &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{}}}
	put := &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{}}}
	remove := &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{}}}
	tails := &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{Success: []*pb.RequestOp{look, put}}}}
	both := &pb.TxnRequest{Success: []*pb.RequestOp{tails, look, put}, Failure: []*pb.RequestOp{tails, look}}
	more := &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{ResponseRange: &pb.RangeResponse{More: true}}}
	question := &pb.TxnRequest{
		Success: []*pb.RequestOp{tails, look, remove},
		Failure: []*pb.RequestOp{{Request: &pb.RequestOp_RequestTxn{RequestTxn: both}}},
	}
	key := &mvccpb.KeyValue{Key: []byte("dlock/l/a/w/7"), Value: []byte(marked), CreateRevision: 3}
	found := &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{ResponseRange: &pb.RangeResponse{Kvs: []*mvccpb.KeyValue{key}, More: true}}}
	wrap := func(r *pb.TxnResponse) *pb.ResponseOp {
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseTxn{ResponseTxn: r}}
	}
	wrote := &pb.ResponseOp{Response: &pb.ResponseOp_ResponsePut{ResponsePut: new(pb.PutResponse)}}
	removed := &pb.ResponseOp{Response: &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: new(pb.DeleteRangeResponse)}}
	none, named := wrap(new(pb.TxnResponse)), wrap(&pb.TxnResponse{Succeeded: true, Responses: []*pb.ResponseOp{found, wrote}})
	for _, r := range []*pb.TxnResponse{
		{},
		{Succeeded: true, Responses: []*pb.ResponseOp{named, found, removed}},
		{Succeeded: true, Responses: []*pb.ResponseOp{none, found, removed}},
		{Responses: []*pb.ResponseOp{wrap(&pb.TxnResponse{Responses: []*pb.ResponseOp{found, named}})}},
		{Responses: []*pb.ResponseOp{wrap(&pb.TxnResponse{Responses: []*pb.ResponseOp{more, none}})}},
	} {
		raw, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		r := new(pb.TxnResponse)
		if proto.Unmarshal(raw, r) != nil || !answers(question, r) {
			return
		}
		p := &position{session: &session{id: "7"}, request: backend.Request{Wait: true}, thorough: true, key: &lockKey{dir: "dlock/l/a/", own: "dlock/l/a/w/7"}}
		h := &hold{key: p.key, revision: 3}
		if !r.Succeeded {
			nested := r.Responses[0].GetResponseTxn()
			h.readKey(r.Responses[0])
			r = nested
		}
		p.readJoin(3, r.Responses)
		h.readKey(r.Responses[0])
		h.readKey(r.Responses[1])
		h.isOwnDowngrade(r.Responses[1].GetResponseRange())
		l := &watcher{session: p.session}
		for _, kv := range r.Responses[1].GetResponseRange().GetKvs() {
			l.handleEvent((*clientv3.Event)(&mvccpb.Event{Kv: kv}))
			l.handleEvent((*clientv3.Event)(&mvccpb.Event{Kv: kv, Type: mvccpb.Event_DELETE}))
		}
		l.handleEvent(new(clientv3.Event))
	})
}
