package redis

import (
	"crypto/rand"
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/faultnet"
)

// A starter is one of several servers that decide together, behind a proxy.
type starter struct {
	*Backend
	t     *testing.T
	proxy *faultnet.Proxy
	name  string
	seq   uint64
}

func newStarter(t *testing.T, name string) *starter {
	must[int64](t)(plainClient(t, shared).HSet(within(t), bootKey, "since", 1).Result())
	b, p := behindProxy(t)
	return &starter{Backend: b, t: t, proxy: p, name: name}
}

func (s *starter) request() (backend.Request, backend.Ballot) {
	s.seq++
	return backend.Request{Mode: backend.Exclusive, Name: s.name, ID: backend.ID{Client: "client", Seq: s.seq}, TTL: 3 * time.Second},
		backend.Ballot{Token: uint64(time.Now().Add(20 * time.Millisecond).UnixMicro())}
}

// warm leaves a lock that was free the last time.
func (s *starter) warm() {
	ctx := within(s.t)
	for range 2 {
		r, v := s.request()
		must[any](s.t)(nil, s.Release(ctx, must[*backend.Hold](s.t)(s.Vote(ctx, r, v))))
	}
	rest(s.t, s.wire.(*wire))
}

// start begins to vote.
func (s *starter) start() (backend.Started[*backend.Hold], backend.Ballot) {
	s.t.Helper()
	r, v := s.request()
	started, ok := s.StartVote(r, v)
	if !ok {
		s.t.Fatal("a request is not sent at once")
	}
	return started, v
}

// cycle takes the lock and gives it back. It reports whether both answers came at
// once.
func (s *starter) cycle() bool {
	s.t.Helper()
	started, v := s.start()
	h, granted := soon(s.t, started)
	if h.Token < v.Token { // it is greater if the proposal took too long
		s.t.Errorf("the token is %d, proposed was %d", h.Token, v.Token)
	}
	rest(s.t, s.wire.(*wire))
	ended, ok := s.StartRelease(h)
	if !ok {
		s.t.Fatal("a release is not sent at once")
	}
	_, released := soon(s.t, ended)
	rest(s.t, s.wire.(*wire))
	return granted && released
}

// promptly fails the test unless a server answers at once, if not always.
func (s *starter) promptly(t *testing.T) {
	t.Helper()
	for range 100 {
		if s.cycle() {
			return
		}
	}
	t.Error("of 100 answers none comes at once")
}

// soon returns the answer, and whether it came at once. It must be a good one.
func soon[T any](t *testing.T, s backend.Started[T]) (T, bool) {
	t.Helper()
	answer, ok := s.Soon()
	if !ok {
		answer = must[T](t)(s.Finish(within(t)))
	}
	return answer, ok
}

func TestStartedVote(t *testing.T) {
	ctx := within(t)
	s := newStarter(t, t.Name()+rand.Text()) // no other run has refused an id
	if _, ok := s.StartVote(s.request()); ok {
		t.Fatal("a lock is asked for at once of which nothing is known")
	}
	s.warm()
	s.promptly(t)
	if n := sent(t, shared, func() { s.promptly(t) }); n%2 != 0 {
		t.Errorf("%d commands", n)
	}
	must[string](t)(s.client.ScriptFlush(ctx).Result())
	if s.cycle() {
		t.Error("a server answers that does not know the scripts")
	}
	s.promptly(t)

	r, v := s.request()
	h := must[*backend.Hold](t)(newStarter(t, s.name).Vote(ctx, r, v))
	started, _ := s.start()
	if _, ok := started.Soon(); ok {
		t.Fatal("two hold the lock")
	}
	if _, err := started.Finish(ctx); err != backend.ErrHeld {
		t.Errorf("a lock that is held: %v", err)
	}
	must[any](t)(nil, s.Release(ctx, h))
}

// TestStartedWithoutReply has nobody hear of a grant and of a release. Both are asked
// for again.
func TestStartedWithoutReply(t *testing.T) {
	ctx := within(t)
	s := newStarter(t, t.Name()+rand.Text()) // no other run has refused an id
	s.warm()
	s.proxy.DropReplyAfter(runs(grabScript))
	started, v := s.start()
	if _, ok := started.Soon(); ok {
		t.Fatal("a reply has come")
	}
	h := must[*backend.Hold](t)(started.Finish(ctx))
	if h.Token < v.Token { // it is greater if the proposal took too long
		t.Errorf("the token is %d, proposed was %d", h.Token, v.Token)
	}
	must[any](t)(nil, s.Release(ctx, h))

	s.name += "/release"
	s.warm()
	started, _ = s.start()
	h, _ = soon(t, started)
	rest(t, s.wire.(*wire))
	s.proxy.DropReplyAfter(runs(dropScript))
	ended, ok := s.StartRelease(h)
	if !ok {
		t.Fatal("a release is not sent at once")
	}
	if _, ok := ended.Soon(); ok {
		t.Fatal("a reply has come")
	}
	must[struct{}](t)(ended.Finish(ctx))
	s.warm()
}

// TestVoteOfAServerThatForgot has a server with a key of the lock, but none that a
// vote has written since it has its data.
func TestVoteOfAServerThatForgot(t *testing.T) {
	ctx := within(t)
	s := newStarter(t, t.Name()+rand.Text())
	s.warm()
	admin := plainClient(t, shared)
	must[int64](t)(admin.HDel(ctx, mainKey(s.name), "t").Result())
	must[int64](t)(admin.HSet(ctx, bootKey, "since", time.Now().UnixMicro()).Result())
	r, v := s.request()
	v.Rejoin = time.Hour
	started, ok := s.StartVote(r, v)
	if !ok {
		t.Fatal("a request is not sent at once")
	}
	if _, ok := started.Soon(); ok {
		t.Fatal("the lock is granted")
	}
	var not *backend.NotReadyError
	if _, err := started.Finish(ctx); !errors.As(err, &not) {
		t.Errorf("the error is %v, want that it takes no part yet", err)
	}
}
