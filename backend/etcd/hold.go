package etcd

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/backend"
)

// firstRenewal is when a hold that an event has granted is renewed for the first time.
// Not at once: a critical section of microseconds shall not cost another request.
const firstRenewal = 100 * time.Millisecond

// tokensPerHold is how many tokens each revision has, for the goroutines that pass a
// hold on.
const tokensPerHold = 1 << 16

// A hold is the backend's own part of a backend.Hold.
type hold struct {
	session  *session
	key      *lockKey
	revision int64
	request  backend.Request
	marked   keyVersion // the key of the writer that has handed the lock over; deleted with the release
	hasTails bool       // the queue had tails when the request joined it; deleted with the release if nobody follows

	downgraded atomic.Bool // or about to be: either key may exist
	ending     atomic.Bool // it is released at a given time
	wanted     atomic.Bool // its owner knows that somebody waits

	mu       sync.Mutex  // held while these are set
	sending  int         // releases under way
	unsure   atomic.Bool // a release was not answered, or may have been overtaken
	released atomic.Bool // a release was carried out
}

// newHold returns the hold of a position that has no predecessor.
func (p *position) newHold(ctx context.Context) (*backend.Hold, error) {
	s, r := p.session, p.request
	need := s.granted / 2
	if r.Fixed {
		need = r.TTL // nobody is going to renew it
	}
	if err := s.renewIfShort(ctx, need); err != nil {
		return nil, err
	}
	own := &hold{session: s, key: p.key, revision: p.revision, request: r, marked: p.marked, hasTails: p.hasTails}
	if err := s.addHold(own); err != nil {
		return nil, err
	}
	h := &backend.Hold{Request: r, Token: uint64(p.revision) * tokensPerHold, Sent: s.lastSent(), Granted: s.granted, TellsWanted: !r.Fixed, State: own}
	if r.Fixed && !p.grantedByEvent {
		h.Sent, h.Granted = p.provenAt, min(r.TTL, h.Sent.Add(s.granted).Sub(p.provenAt))
	}
	if p.grantedByEvent { // no answer proves that the key exists: the renewal asks
		h.RenewIn = time.Since(h.Sent) + min(firstRenewal, h.Granted/6)
	}
	return h, nil
}

// Transfer implements backend.Transferer. Whoever is granted later has a key of
// a later revision, and with it a later block of tokens.
func (b *Backend) Transfer(h *backend.Hold) (uint64, bool) {
	return backend.NextInBlock(h, tokensPerHold)
}

// keyExists is true while the key of an exclusive hold exists, or of a shared one that
// never was exclusive.
func (h *hold) keyExists() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(h.key.own), "=", h.revision)
}

// hasNoSuccessor is true while no request waits for the hold to end.
func (h *hold) hasNoSuccessor() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(h.key.rivals()).WithPrefix(), "<", h.revision+1)
}

// ownOf returns the backend's own parts of holds.
func ownOf(holds []*backend.Hold) []*hold {
	own := make([]*hold, len(holds))
	for i, h := range holds {
		own[i] = h.State.(*hold)
	}
	return own
}

// askAll has one transaction carry out op for each of the holds, and returns what read says of
// the answers.
func (s *session) askAll(ctx context.Context, holds []*hold, op func(*hold) clientv3.Op, read func(*hold, *pb.ResponseOp) bool) ([]bool, error) {
	said := make([]bool, len(holds))
	ops := make([]clientv3.Op, len(holds))
	for i, h := range holds {
		ops[i] = op(h)
	}
	reply, err := s.backend.client.Txn(ctx).Then(ops...).Commit()
	for i, h := range holds {
		said[i] = err == nil && read(h, reply.Responses[i])
	}
	return said, err
}
