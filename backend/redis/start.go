package redis

import (
	"context"

	"github.com/dlock-go/dlock/backend"
)

var _ backend.Starter = (*Backend)(nil)

// A startedVote is a call that has sent its first request.
type startedVote struct {
	*call
	early   early
	heard   bool
	answer  answer // to that request, once it is heard
	granted bool
	unknown bool // the server did not know the script
}

// StartVote implements backend.Starter, for locks that were free the last time.
func (b *Backend) StartVote(r backend.Request, v backend.Ballot) (backend.Started[*backend.Hold], bool) {
	k := lockKey(r.Name)
	if !b.mayGrab(k, r.Mode) || !b.begin() {
		return nil, false
	}
	early, ok := b.lend()
	if !ok {
		b.calls.Done()
		return nil, false
	}
	c := b.newCall(k, &r, &v)
	early.post(attempt(c.TTL), c.grabbing())
	return &startedVote{call: c, early: early}, true
}

// Soon implements backend.Started.
func (v *startedVote) Soon() (*backend.Hold, bool) {
	if !v.early.hasCome(prompt) {
		return nil, false
	}
	v.hear(v.early.result())
	if !v.granted {
		return nil, false
	}
	h := v.acceptNow(v.grantOf(v.answer))
	if h != nil {
		v.end()
	}
	return h, h != nil
}

// Finish implements backend.Started.
func (v *startedVote) Finish(ctx context.Context) (*backend.Hold, error) {
	defer v.end()
	if !v.heard {
		v.hear(v.early.await(ctx))
	}
	if v.unknown {
		v.answer, v.granted = v.grab(ctx)
	}
	if v.granted {
		return v.take(ctx, v.answer, nil)
	}
	return v.begin(ctx)
}

func (v *startedVote) hear(reply any, err error) {
	v.heard, v.answer.sent = true, v.early.sent
	v.answer.read(reply)
	v.granted, v.unknown = v.grabbed(v.answer, v.note("t", v.answer, err)), unknownScript(err)
}

// A startedRelease is the release of a hold that has sent its first request.
type startedRelease struct {
	release
	early   early
	heard   bool
	unknown bool
}

// StartRelease implements backend.Starter, for holds that nobody wants.
func (b *Backend) StartRelease(h *backend.Hold) (backend.Started[struct{}], bool) {
	r := b.newRelease(h)
	if !r.state.mayDrop() {
		return nil, false
	}
	early, ok := b.lend()
	if !ok {
		return nil, false
	}
	early.post(r.attempt(), r.dropping())
	return &startedRelease{release: r, early: early}, true
}

// Soon implements backend.Started.
func (r *startedRelease) Soon() (none struct{}, done bool) {
	if !r.early.hasCome(prompt) {
		return none, false
	}
	done = r.hear(r.early.result())
	if done {
		r.end()
	}
	return none, done
}

// Finish implements backend.Started.
func (r *startedRelease) Finish(ctx context.Context) (none struct{}, err error) {
	defer r.end()
	if !r.heard && r.hear(r.early.await(ctx)) || r.unknown && r.drop(ctx) {
		return none, nil
	}
	return none, r.insist(ctx)
}

func (r *startedRelease) hear(reply any, err error) (done bool) {
	r.heard, r.unknown = true, unknownScript(err)
	var a answer
	a.read(reply)
	return r.dropped(a, err)
}

// lend takes the wire for a caller that starts a request, if there is one wire and
// it is idle.
func (b *Backend) lend() (e early, ok bool) {
	if w, single := b.wire.(*wire); single {
		return w.lend()
	}
	return e, false
}
