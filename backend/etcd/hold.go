package etcd

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/backend"
)

// soon is when a hold that an event has granted is renewed for the first time, but
// not at once: a critical section of microseconds shall not cost a further request.
const soon = 100 * time.Millisecond

// tokens is how many there are to each revision, for the goroutines that pass a
// hold on.
const tokens = 1 << 16

// A hold is the backend's own part of a backend.Hold.
type hold struct {
	session  *session
	key      *lockKey
	revision int64
	label    string
	passed   seenKey // a released key that goes with the release
	observer backend.Observer

	mu         sync.Mutex
	downgraded bool // or about to be: either key may be there
	sending    int  // releases under way
	unsure     bool // one was not answered, or may have been overtaken
	released   bool // the key was given up
	wanted     bool // its owner knows that somebody waits
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
	own := &hold{session: s, key: p.key, revision: p.revision, label: r.Label, passed: p.passed, observer: observerOf(r)}
	if err := s.adopt(own); err != nil {
		return nil, err
	}
	h := &backend.Hold{Request: r, Token: uint64(p.revision) * tokens, Sent: s.lastSent(), Granted: s.granted, TellsWanted: !r.Fixed, State: own}
	if r.Fixed && !p.told {
		h.Sent, h.Granted = p.proved, min(r.TTL, h.Sent.Add(s.granted).Sub(p.proved))
	}
	if p.told { // that the own key is there is not proven: the renewal looks
		h.RenewIn = time.Since(h.Sent) + min(soon, h.Granted/6)
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
	err := repeat(ctx, h.TTL, own.release)
	switch {
	case lost == nil && errors.Is(err, backend.ErrLost) && own.isUnsure():
		err = backend.Fail(backend.ErrUnavailable, errNoAnswer)
	case errors.Is(err, backend.ErrUnavailable), errors.Is(err, backend.ErrAuth):
		b.janitor.Go(func(context.Context) { backend.Retry(own.session.ctx, own.release) })
	}
	return b.at(err)
}

// Transfer implements backend.Transferer. Whoever is granted later has a key of
// a later revision, and with it a later block of tokens.
func (b *Backend) Transfer(h *backend.Hold) (uint64, bool) { return backend.NextInBlock(h, tokens) }

// repeat calls do until it has an answer, ctx ends, or limit has passed.
func repeat(ctx context.Context, limit time.Duration, do func(context.Context) error) error {
	ctx, cancel := backend.Bound(ctx, limit)
	defer cancel()
	for pause := (backend.Backoff{}); ; {
		err := do(ctx)
		if !errors.Is(err, backend.ErrUnavailable) || !backend.Sleep(ctx, pause.Next()) {
			return err
		}
	}
}

// release gives the hold's key up. That it was not there is no loss if an earlier
// release may have done so.
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
	what, err := h.giveBack(ctx)
	return h.end(what, err)
}

// begin notes that a release is about to be sent. Once the key was given up none
// is: then begin reports true, and what there is to say.
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

// An outcome is what a release has done.
type outcome int

const (
	keyGone    outcome = iota // nothing: the key was not there
	keyDeleted                // nobody was behind it, or it was a reader's
	keyMarked                 // the next in line has the lock
)

// end notes the answer to a release.
func (h *hold) end(what outcome, err error) error {
	s := h.session
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sending--
	h.unsure = h.unsure || h.sending > 0
	switch {
	case err != nil:
		h.unsure = true
		return s.failed(err)
	case what == keyGone && !h.unsure:
		err = backend.Fail(backend.ErrLost, errKeyDeleted)
	}
	switch {
	case h.released:
	case what == keyMarked:
		s.leaveReleased(releasedKey{h.key, seenKey{h.key.own, h.revision}})
	default:
		s.giveUp(h.key, false)
	}
	h.released = true
	return err
}

// gone reports whether the key was certainly given up.
func (h *hold) gone() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.released
}

// doubt notes that a release may have been carried out.
func (h *hold) doubt() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unsure = true
}

func (h *hold) isUnsure() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.unsure
}

// giveBack sends a release. All that it does is on condition that the key is the
// one that the hold was granted with, since its name may be in use again when a
// copy of the request arrives late.
func (h *hold) giveBack(ctx context.Context) (outcome, error) {
	tidy := h.passed.tidy()
	drop := append([]clientv3.Op{clientv3.OpDelete(h.key.own)}, tidy...)
	switch {
	case h.mayBeDowngraded():
		return h.giveBackDowngraded(ctx, drop)
	case h.key.mode == backend.Shared:
		reply, err := h.session.backend.client.Txn(ctx).If(h.stands()).Then(drop...).Commit()
		return outcomeOf(err == nil && reply.Succeeded, keyDeleted), err
	}
	mark := clientv3.OpPut(h.key.own, released, clientv3.WithLease(h.session.lease))
	reply, err := h.session.backend.client.Txn(ctx).
		If(h.stands(), h.isLast()).
		Then(drop...).
		Else(clientv3.OpTxn([]clientv3.Cmp{h.stands()}, append([]clientv3.Op{mark}, tidy...), nil)).
		Commit()
	switch {
	case errors.Is(err, rpctypes.ErrNoSpace): // the server deletes, and puts nothing; or it has done this
		h.doubt()
		reply, err := h.session.backend.client.Txn(ctx).If(h.stands()).Then(drop...).Commit()
		return outcomeOf(err == nil && reply.Succeeded, keyDeleted), err
	case err != nil:
		return keyGone, err
	case reply.Succeeded:
		return keyDeleted, nil
	}
	return outcomeOf(reply.Responses[0].GetResponseTxn().Succeeded, keyMarked), nil
}

func (h *hold) giveBackDowngraded(ctx context.Context, drop []clientv3.Op) (outcome, error) {
	former := clientv3.Compare(clientv3.Value(h.key.downgraded()), "=", h.mark())
	reply, err := h.session.backend.client.Txn(ctx).
		If(h.stands()).
		Then(drop...).
		Else(clientv3.OpTxn([]clientv3.Cmp{former}, []clientv3.Op{clientv3.OpDelete(h.key.downgraded())}, nil)).
		Commit()
	if err != nil {
		return keyGone, err
	}
	return outcomeOf(reply.Succeeded || reply.Responses[0].GetResponseTxn().Succeeded, keyDeleted), nil
}

func outcomeOf(done bool, what outcome) outcome {
	if done {
		return what
	}
	return keyGone
}

// find looks for the hold's key, or for that of its downgrade. While nobody is known
// to wait it asks for that in passing: then there is an answer only if somebody does,
// or if the key is gone.
func (h *hold) find() clientv3.Op {
	h.mu.Lock()
	defer h.mu.Unlock()
	own := clientv3.OpGet(h.key.own)
	switch {
	case h.downgraded:
		return clientv3.OpTxn([]clientv3.Cmp{h.stands()}, []clientv3.Op{own}, []clientv3.Op{clientv3.OpGet(h.key.downgraded())})
	case h.wanted:
		return own
	}
	unmarked := clientv3.Compare(clientv3.Value(h.key.own), "!=", released)
	return clientv3.OpTxn([]clientv3.Cmp{h.stands(), unmarked, h.isLast()}, nil, []clientv3.Op{own})
}

// found reports whether the answer to find is the key of the hold, and not one
// that came later. It tells the hold's owner of who waits.
func (h *hold) found(r *pb.ResponseOp) bool {
	kept := r.GetResponseRange()
	if nested := r.GetResponseTxn(); nested != nil {
		if len(nested.Responses) == 0 {
			return true
		}
		kept = nested.Responses[0].GetResponseRange()
	}
	kv := first(kept)
	switch {
	case kv == nil:
		return false
	case kv.CreateRevision != h.revision || isReleased(kv):
		return h.marked(kept)
	}
	h.want()
	return true
}

// want tells the owner that somebody waits, once.
func (h *hold) want() {
	h.mu.Lock()
	told := h.wanted || h.downgraded
	h.wanted = true
	h.mu.Unlock()
	if !told {
		h.observer.Wanted()
	}
}

// stands is true of the key of an exclusive hold, or of a shared one that never
// was exclusive.
func (h *hold) stands() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(h.key.own), "=", h.revision)
}

// isLast is true while no request waits for the hold to end.
func (h *hold) isLast() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(h.key.rivals()).WithPrefix(), "<", h.revision+1)
}

// mark is the value of the key of a hold that was downgraded.
func (h *hold) mark() string { return strconv.FormatInt(h.revision, 10) + live + h.label }

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
	return repeat(ctx, h.TTL, own.downgrade)
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
	return len(found.GetKvs()) > 0 && string(found.Kvs[0].Value) == h.mark()
}
