package redis

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/faultnet"
	"github.com/dlock-go/dlock/internal/server"
)

// TestCommandsOfALockThatWasFree counts what is sent where a client takes a lock
// to be free: nothing more if it is, and one request more at each change.
func TestCommandsOfALockThatWasFree(t *testing.T) {
	ctx := within(t)
	s := server.Start(t, server.Redis{})
	m, other := openClient(t, s, nil).Mutex(t.Name()), openClient(t, s, nil).Mutex(t.Name())
	warm(t, s, m)
	count := func(want int64, what string, f func()) {
		t.Helper()
		if n := sent(t, s, f); n != want {
			t.Errorf("%s: %d commands, want %d", what, n, want)
		}
	}
	cycle := func() { must[any](t)(nil, turns(ctx, m, 1)) }
	count(2, "a free lock", cycle)

	l := must[*dlock.Lease](t)(other.Lock(ctx))
	subscribed(t, s, 2)
	try := func() {
		if _, err := m.TryLock(ctx); err == nil {
			t.Error("two hold the lock")
		}
	}
	count(2, "one that is held after all", try)
	count(1, "one that was held", try)
	must[any](t)(nil, l.Unlock(ctx))
	count(2, "one that is free again", cycle)
	count(2, "one that was free again", cycle)
}

// TestUnansweredGrabIsNotTriedAgain has nobody answer whether a lock is still free, which another client has. It is
// asked for in full from then on, which takes one request.
func TestUnansweredGrabIsNotTriedAgain(t *testing.T) {
	ctx := within(t)
	b, p := behindProxy(t)
	request := func(client string, seq uint64) backend.Request {
		return backend.Request{Name: t.Name(), ID: backend.ID{Client: client, Seq: seq}, Mode: backend.Exclusive, TTL: limit}
	}
	for seq := range uint64(2) { // the first grant says more than its token
		must[any](t)(nil, b.Release(ctx, must[*backend.Hold](t)(b.Acquire(ctx, request("client", seq)))))
	}
	must[*backend.Hold](t)(listening(t, plainClient(t, shared)).Acquire(ctx, request("other", 1)))
	for call, grabs := range []bool{true, false} {
		lost := p.DropReplyAfter(runs(grabScript))
		if _, err := b.Acquire(ctx, request("client", uint64(2+call))); !errors.Is(err, backend.ErrHeld) {
			t.Error(err)
		}
		if lost.Answered() != grabs {
			t.Errorf("call %d: asks whether the lock is free: %v", call, lost.Answered())
		}
	}
}

// TestGrabIsAnAnswer has another client take a lock that was free. Whoever waits for an answer as long as a server
// uses to take hears that there was one, before the lock is asked for in full.
func TestGrabIsAnAnswer(t *testing.T) {
	ctx, b := within(t), listening(t, plainClient(t, shared))
	request := func(client string, seq uint64) backend.Request {
		return backend.Request{Name: t.Name(), ID: backend.ID{Client: client, Seq: seq}, Mode: backend.Exclusive, TTL: limit}
	}
	for seq := range uint64(2) { // the first grant says more than its token
		must[any](t)(nil, b.Release(ctx, must[*backend.Hold](t)(b.Acquire(ctx, request("client", seq)))))
	}
	must[*backend.Hold](t)(listening(t, plainClient(t, shared)).Acquire(ctx, request("other", 1)))
	for _, want := range []int{1, 0} {
		answers := 0
		_, err := b.Acquire(backend.WithProgress(ctx, func() { answers++ }), request("client", 2))
		is(t, err, backend.ErrHeld)
		if answers != want {
			t.Errorf("%d answers before the last, want %d", answers, want)
		}
	}
}

// TestLostReplyToADrop has nobody hear that a free lock is released: the next
// request finds nothing to release, and that is no loss.
func TestLostReplyToADrop(t *testing.T) {
	ctx := within(t)
	b, p := behindProxy(t)
	for i := range 2 {
		h := must[*backend.Hold](t)(b.Acquire(ctx, backend.Request{
			Name: t.Name(), ID: backend.ID{Client: "client", Seq: uint64(i)}, TTL: 3 * time.Second,
		}))
		if !stateOf(h).unwanted.Load() {
			t.Error("the hold is released in full")
		}
		p.DropReplyAfter(runs(dropScript))
		must[any](t)(nil, b.Release(ctx, h))
	}
}

// TestLostReplyToAReleaseOnAClientThatRepeats has nobody hear of a release on a
// client with the options that most programs leave it: the library asks again by
// default.
func TestLostReplyToAReleaseOnAClientThatRepeats(t *testing.T) {
	for name, open := range map[string]func(addr string) redis.UniversalClient{
		"client": func(addr string) redis.UniversalClient {
			return redis.NewClient(&redis.Options{Addr: addr, DisableIdentity: true, ReadTimeout: time.Second})
		},
		"with deadlines of contexts": func(addr string) redis.UniversalClient {
			return redis.NewClient(&redis.Options{Addr: addr, DisableIdentity: true, ContextTimeoutEnabled: true})
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := proxied(t)
			b := listening(t, open(p.Addr()))
			for i, s := range []*script{dropScript, dropScript, releaseScript, releaseScript} {
				h := must[*backend.Hold](t)(b.Acquire(within(t), backend.Request{
					Name: t.Name(), ID: backend.ID{Client: "client", Seq: uint64(i)}, TTL: 10 * time.Second,
				}))
				stateOf(h).unwanted.Store(s == dropScript)
				dropped := p.DropReplyAfter(runs(s))
				must[any](t)(nil, b.Release(within(t), h))
				<-dropped.Fired()
				if !dropped.Answered() {
					t.Error("the reply was not lost")
				}
			}
		})
	}
}

// proxied returns what requests to the shared server go through.
func proxied(t *testing.T) *faultnet.Proxy {
	t.Helper()
	p := must[*faultnet.Proxy](t)(faultnet.Listen(shared.Addr()))
	p.SetFraming(faultnet.RESP)
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// listening returns a backend whose client "client" listens.
func listening(t *testing.T, c redis.UniversalClient) *Backend {
	t.Helper()
	b := New(c, nil)
	t.Cleanup(func() { must[any](t)(nil, b.Close(within(t))) })
	if !b.listener.existing(b.channelOf(lockKey(t.Name()), "client")).works(within(t), limit) {
		t.Fatal("no subscription")
	}
	return b
}

// behindProxy returns a backend and what its requests go through. Its client "client" listens.
func behindProxy(t *testing.T) (*Backend, *faultnet.Proxy) {
	t.Helper()
	p := proxied(t)
	b := listening(t, redis.NewClient(&redis.Options{
		Addr: p.Addr(), DisableIdentity: true, MaxRetries: -1, ReadTimeout: limit,
	}))
	return b, p
}

// runs finds requests to run a script.
func runs(s *script) func(request []byte) bool {
	return func(request []byte) bool { return bytes.Contains(request, []byte(s.sha)) }
}

// A grabEnds is a hook that calls end when a script has been answered.
type grabEnds struct {
	script *script
	end    func()
}

func (grabEnds) DialHook(next redis.DialHook) redis.DialHook { return next }

func (grabEnds) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (g grabEnds) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if args := cmd.Args(); len(args) > 1 && args[1] == g.script.sha {
			g.end()
		}
		return err
	}
}

// TestContextThatEndsBeforeTheQuestion ends the context of who asks for a free lock when the
// server has said that the script of one key cannot grant it: nobody has said that it is held.
func TestContextThatEndsBeforeTheQuestion(t *testing.T) {
	refused := 0
	for i := range 20 { // the question may have been sent, and is answered
		rdb := plainClient(t, shared)
		ctx, cancel := context.WithCancel(within(t))
		b := New(rdb, nil)
		t.Cleanup(func() { _ = b.Close(expired()) })
		r := backend.Request{
			Name: fmt.Sprint(t.Name(), i), ID: backend.ID{Client: t.Name(), Seq: 1}, Mode: backend.Exclusive, TTL: time.Second,
		}
		for range 3 { // at last by the script of one key
			h := must[*backend.Hold](t)(b.Acquire(ctx, r))
			must[any](t)(nil, b.Release(ctx, h))
		}
		rdb.AddHook(grabEnds{grabScript, cancel})
		r.TTL = time.Hour // the key is not kept for as long
		if _, err := b.Acquire(ctx, r); err != nil {
			is(t, err, backend.ErrUnavailable)
			refused++
		}
	}
	if refused == 0 {
		t.Error("no context ended before the question")
	}
}
