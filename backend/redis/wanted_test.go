package redis

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
)

// An observer notes that somebody waits.
type observer chan struct{}

func (l observer) Queued() {}

func (l observer) Lost(error) {}

func (l observer) Wanted() {
	select {
	case l <- struct{}{}:
	default:
	}
}

// is checks whether the observer has been told that somebody waits.
func (l observer) is(t *testing.T, told bool) {
	t.Helper()
	if got := len(l) > 0; got != told {
		t.Errorf("told that somebody waits: %v, want %v", got, told)
	}
}

// A party asks a backend by hand, as package dlock does.
type party struct {
	*Backend
	t  *testing.T
	id backend.ID
	observer
}

func newParty(t *testing.T, o *Options) *party {
	t.Helper()
	b := New(plainClient(t, shared), o)
	t.Cleanup(func() { _ = b.Close(within(t)) })
	return &party{b, t, backend.ID{Client: fmt.Sprintf("%s%p", t.Name(), b), Seq: 1}, make(observer, 1)}
}

func (p *party) request(wait bool) backend.Request {
	return backend.Request{Name: p.t.Name(), ID: p.id, Mode: backend.Exclusive, TTL: time.Hour, Wait: wait, Observer: p.observer}
}

// take has the lock as it was free.
func (p *party) take() *backend.Hold {
	p.t.Helper()
	return must[*backend.Hold](p.t)(p.Acquire(within(p.t), p.request(false)))
}

// queueUp joins the queue as somebody who says nothing more.
func queueUp(t *testing.T, c *redis.Client) {
	t.Helper()
	id, k := "w3600000p:"+t.Name()+"x:1", lockKey(t.Name())
	run := func(s *script, call []any) {
		call[0], call[1] = "eval", s.source
		must[any](t)(c.Do(within(t), call...).Result())
	}
	run(acquireScript, acquireScript.call(k.args(5), id, 3_600_000, "w"))
	t.Cleanup(func() { run(releaseScript, releaseScript.callWith(k, 5, releaseArgs(id, false, 0)...)) })
}

func waiting(t *testing.T, c *redis.Client) int64 {
	return c.ZCard(context.Background(), mainKey(t.Name())+":q").Val()
}

// TestWantedByMessage tells a holder at once that somebody has begun to wait.
func TestWantedByMessage(t *testing.T) {
	p, c := newParty(t, nil), plainClient(t, shared)
	h := p.take()
	if !p.listener.existing(p.channelOf(lockKey(t.Name()), h.ID.Client)).works(within(t), limit) {
		t.Fatal("no subscription")
	}
	p.is(t, false)
	queueUp(t, c)
	eventually(t, "it is told that somebody waits", func() bool { return len(p.observer) > 0 })
	must[any](t)(nil, p.Release(within(t), h))
}

// TestWantedByRenewal tells so a holder whom no message reaches.
func TestWantedByRenewal(t *testing.T) {
	p, c := newParty(t, &Options{PollOnly: true}), plainClient(t, shared)
	h := p.take()
	renew := func() {
		p.Renew(within(t), []*backend.Hold{h}, func(_ *backend.Hold, err error) { must[any](t)(nil, err) })
	}
	renew()
	p.is(t, false)
	queueUp(t, c)
	renew()
	p.is(t, true)
	must[any](t)(nil, p.Release(within(t), h))
}

// TestWantedFromTheStart tells so one who has waited itself, with its grant: by
// a message, and by the answer to its own question.
func TestWantedFromTheStart(t *testing.T) {
	for name, o := range map[string]*Options{"Message": nil, "Reply": {PollOnly: true, Poll: time.Millisecond}} {
		t.Run(name, func(t *testing.T) {
			holder, next, c := newParty(t, nil), newParty(t, o), plainClient(t, shared)
			h := holder.take()
			granted := make(chan *backend.Hold, 1)
			go func() {
				h, err := next.Acquire(within(t), next.request(true))
				if err != nil {
					t.Error(err)
				}
				granted <- h
			}()
			eventually(t, "it waits", func() bool { return waiting(t, c) == 1 })
			queueUp(t, c)
			next.is(t, false)
			must[any](t)(nil, holder.Release(within(t), h))
			h = <-granted
			next.is(t, true)
			must[any](t)(nil, next.Release(within(t), h))
		})
	}
}

// TestWantedAheadOfTheGrant has the message that somebody waits come before the hold is
// known: it comes on another connection, and a grant may have to be confirmed.
func TestWantedAheadOfTheGrant(t *testing.T) {
	l, ids := newListener(nil, nil, nil, true), newIDSigner()
	hold := func(seq uint64) *holdState {
		r := &backend.Request{Name: t.Name(), ID: backend.ID{Client: "c", Seq: seq}, TTL: time.Minute}
		return &holdState{id: ids.newID(lockKey(r.Name), r, 0, false, nil)}
	}
	early, other := hold(1), hold(2)
	l.dispatch("contended " + hintOf(early.id))
	l.dispatch("contended w60000:c:2 " + strings.Repeat("0", 40))
	if isWanted, _ := l.addHold(other); isWanted {
		t.Error("a message about another id counts")
	}
	if isWanted, _ := l.addHold(early); !isWanted {
		t.Error("the message that was early is forgotten")
	}
	for i := range uint64(10 * maxEarly) {
		l.dispatch("contended " + hintOf(hold(i+3).id))
	}
	if len(l.early) > maxEarly {
		t.Errorf("%d messages are kept", len(l.early))
	}
}

// TestWantedByManyReaders tells all readers at once that somebody has begun to wait.
func TestWantedByManyReaders(t *testing.T) {
	const readers = 300
	p, next := newParty(t, nil), newParty(t, nil)
	r := p.request(false)
	r.Mode = backend.Shared
	var holds []*backend.Hold
	told := make([]observer, readers)
	for i := range told {
		told[i] = make(observer, 1)
		r.ID.Seq, r.Observer = uint64(i+1), told[i]
		holds = append(holds, must[*backend.Hold](t)(p.Acquire(within(t), r)))
	}
	if !p.listener.existing(p.channelOf(lockKey(t.Name()), r.ID.Client)).works(within(t), limit) {
		t.Fatal("no subscription")
	}
	ctx, stop := context.WithCancel(within(t))
	ended := make(chan error)
	go func() {
		_, err := next.Acquire(ctx, next.request(true))
		ended <- err
	}()
	for i := range told {
		eventually(t, fmt.Sprintf("reader %d is told", i), func() bool { return len(told[i]) > 0 })
	}
	stop()
	is(t, <-ended, backend.ErrHeld)
	p.ReleaseAll(within(t), holds, func(_ *backend.Hold, err error) { must[any](t)(nil, err) })
}

// TestNobodyObserves has messages come about a hold of a request without an Observer.
func TestNobodyObserves(t *testing.T) {
	p := newParty(t, nil)
	r := p.request(false)
	r.Observer = nil
	h := must[*backend.Hold](t)(p.Acquire(within(t), r))
	for _, what := range []string{"contended ", "broken ", "poll "} {
		p.listener.dispatch(what + hintOf(stateOf(h).id))
	}
	if stateOf(h).unwanted.Load() {
		t.Error("nothing is made of a message")
	}
	must[any](t)(nil, p.Release(within(t), h))
}
