package etcd

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/backend"
)

// tokens is how many there are to each revision, for the goroutines that pass a
// hold on.
const tokens = 1 << 16

// A hold is the backend's own part of a backend.Hold.
type hold struct {
	session  *session
	key      *lockKey
	revision int64
	observer backend.Observer

	mu         sync.Mutex
	downgraded bool // or about to be: either key may be there
	sending    int  // releases under way
	unsure     bool // one was not answered, or may have been overtaken
	released   bool // the keys are gone
}

// observerOf returns the observer of a request, or one that does nothing.
func observerOf(r backend.Request) backend.Observer {
	if r.Observer == nil {
		return deaf{}
	}
	return r.Observer
}

type deaf struct{}

func (deaf) Queued()    {}
func (deaf) Lost(error) {}
func (deaf) Wanted()    {}

// hold makes a hold of a place that nothing is ahead of.
func (p *place) hold(ctx context.Context) (*backend.Hold, error) {
	s, r := p.session, p.request
	need := s.granted / 2
	if r.Fixed {
		need = r.TTL // nobody is going to renew it
	}
	if err := s.freshen(ctx, need); err != nil {
		return nil, err
	}
	own := &hold{session: s, key: p.key, revision: p.revision, observer: observerOf(r)}
	if err := s.adopt(own); err != nil {
		return nil, err
	}
	h := &backend.Hold{Request: r, Token: uint64(p.revision) * tokens, Sent: s.lastSent(), Granted: s.granted, State: own}
	if r.Fixed {
		h.Sent, h.Granted = p.proved, min(r.TTL, h.Sent.Add(s.granted).Sub(p.proved))
	}
	return h, nil
}

// Release implements backend.Backend. A key that cannot be deleted in time is
// deleted later, or goes with its lease. That is no loss: whoever gave the hold
// back had it until then.
func (b *Backend) Release(ctx context.Context, h *backend.Hold) error {
	own := h.State.(*hold)
	own.session.disown(own)
	lost := own.session.over()
	err := own.session.repeat(ctx, h.TTL, own.release)
	switch {
	case lost == nil && errors.Is(err, backend.ErrLost) && own.isUnsure():
		err = backend.Fail(backend.ErrUnavailable, errNoAnswer)
	case errors.Is(err, backend.ErrUnavailable), errors.Is(err, backend.ErrAuth):
		b.janitor.Go(func(context.Context) { backend.Retry(own.session.ctx, own.release) })
	}
	return err
}

// Transfer implements backend.Transferer. Whoever is granted later has a key of
// a later revision, and with it a later block of tokens.
func (b *Backend) Transfer(h *backend.Hold) (uint64, bool) { return backend.NextInBlock(h, tokens) }

// repeat calls do until it has an answer, ctx ends, or limit has passed. One
// exchange has a limit of its own, and mostly needs no other.
func (s *session) repeat(ctx context.Context, limit time.Duration, do func(context.Context) error) error {
	began := time.Now()
	if limit >= s.longest() {
		if err := do(ctx); !errors.Is(err, backend.ErrUnavailable) {
			return err
		}
	}
	ctx, cancel := backend.Bound(ctx, limit-time.Since(began))
	defer cancel()
	for pause := (backend.Backoff{}); ; {
		err := do(ctx)
		if !errors.Is(err, backend.ErrUnavailable) || !backend.Sleep(ctx, pause.Next()) {
			return err
		}
	}
}

// release deletes the hold's keys. That none was there is no loss if an earlier
// release may have deleted them.
func (h *hold) release(ctx context.Context) error {
	s := h.session
	if s.backend.ctx.Err() != nil {
		return backend.ErrClosed
	}
	if err := s.over(); err != nil {
		return err
	}
	if done, err := h.begin(); done {
		return err
	}
	ctx, cancel := s.exchange(ctx)
	defer cancel()
	deleted, err := h.deleteKeys(ctx)
	return h.end(deleted, err)
}

// begin notes that a release is about to be sent. Once the keys are gone none is,
// for they may have become those of another hold: then begin reports true, and what
// there is to say.
func (h *hold) begin() (done bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case !h.released:
		h.sending++
	case !h.unsure:
		err = backend.Fail(backend.ErrLost, errKeyDeleted)
	}
	return h.released, err
}

// end notes the answer to a release. The key can be used again if no other release
// of the hold may still arrive.
func (h *hold) end(deleted bool, err error) error {
	s := h.session
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sending--
	h.unsure = h.unsure || h.sending > 0
	switch {
	case err != nil:
		h.unsure = true
		return s.failed(err)
	case !deleted && !h.unsure:
		err = backend.Fail(backend.ErrLost, errKeyDeleted)
	}
	if !h.released {
		h.released = true
		s.giveUp(h.key, h.unsure)
	}
	return err
}

func (h *hold) isUnsure() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.unsure
}

// deleteKeys reports whether one of the keys was there and is now deleted. A
// plain deletion costs the server much less than a transaction. It needs no
// condition, nor to know what it has deleted, since nobody else uses the key
// before it has been answered.
func (h *hold) deleteKeys(ctx context.Context) (bool, error) {
	client := h.session.backend.client
	if !h.mayBeDowngraded() {
		reply, err := client.Do(ctx, h.key.deleting)
		return err == nil && reply.Del().Deleted > 0, err
	}
	former := clientv3.Compare(clientv3.Value(h.key.downgraded()), "=", h.mark())
	reply, err := client.Txn(ctx).
		If(h.stands()).
		Then(clientv3.OpDelete(h.key.own)).
		Else(clientv3.OpTxn([]clientv3.Cmp{former}, []clientv3.Op{clientv3.OpDelete(h.key.downgraded())}, nil)).
		Commit()
	if err != nil {
		return false, err
	}
	return reply.Succeeded || reply.Responses[0].GetResponseTxn().Succeeded, nil
}

// stands is true of the key of an exclusive hold, or of a shared one that never
// was exclusive.
func (h *hold) stands() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(h.key.own), "=", h.revision)
}

// mark is the value of the key of a hold that was downgraded.
func (h *hold) mark() string { return strconv.FormatInt(h.revision, 10) }

func (h *hold) mayBeDowngraded() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.downgraded
}

// Downgrade implements backend.Downgrader: one transaction replaces the key by
// one that lets readers pass and writers not.
func (b *Backend) Downgrade(ctx context.Context, h *backend.Hold) error {
	own := h.State.(*hold)
	own.mu.Lock()
	own.downgraded = true
	own.mu.Unlock()
	return own.session.repeat(ctx, h.TTL, own.downgrade)
}

func (h *hold) downgrade(ctx context.Context) error {
	s := h.session
	if err := s.over(); err != nil {
		return err
	}
	ctx, cancel := s.exchange(ctx)
	defer cancel()
	reply, err := s.backend.client.Txn(ctx).
		If(h.stands()).
		Then(clientv3.OpDelete(h.key.own), clientv3.OpPut(h.key.downgraded(), h.mark(), clientv3.WithLease(s.lease))).
		Else(clientv3.OpGet(h.key.downgraded())).
		Commit()
	switch {
	case err != nil:
		return s.failed(err)
	case reply.Succeeded || h.marked(reply.Responses[0].GetResponseRange()):
		return nil
	}
	return backend.Fail(backend.ErrLost, errKeyDeleted)
}

// marked reports whether an earlier try of the downgrade was carried out.
func (h *hold) marked(found *pb.RangeResponse) bool {
	return len(found.Kvs) > 0 && string(found.Kvs[0].Value) == h.mark()
}
