package redis

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
)

// A watchedConn calls on before a release leaves.
type watchedConn struct {
	net.Conn
	on func()
}

func (w watchedConn) Write(b []byte) (int, error) {
	for _, s := range []*script{dropScript, releaseScript} {
		if bytes.Contains(b, []byte(s.sha)) {
			w.on()
		}
	}
	return w.Conn.Write(b)
}

type silentObserver struct{}

func (silentObserver) Queued()    {}
func (silentObserver) Lost(error) {}
func (silentObserver) Wanted()    {}

// TestGrantToldDuringRelease has the message of a grant come after the reply
// that told it, when the hold is being released: it is nobody's stray grant,
// whose release could overtake the one under way and make it fail.
func TestGrantToldDuringRelease(t *testing.T) {
	ctx := within(t)
	var told func()
	rdb := redis.NewClient(&redis.Options{
		Addr: shared.Addr(),
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			return watchedConn{conn, func() { told() }}, err
		},
	})
	t.Cleanup(func() { _ = rdb.Close() })
	b := New(rdb, nil)
	t.Cleanup(func() { _ = b.Close(context.Background()) })
	h := must[*backend.Hold](t)(b.Acquire(ctx, backend.Request{
		Name: t.Name(), ID: backend.ID{Client: t.Name(), Seq: 1}, Mode: backend.Exclusive, TTL: limit, Observer: silentObserver{},
	}))
	unclaimed, messages := 0, 0
	b.listener.onUnclaimed = func(key, string) { unclaimed++ }
	told = func() {
		messages++
		b.listener.dispatch(fmt.Sprintf("%s %d 1 2 0 %s", stateOf(h).id, h.Token, mainKey(t.Name())))
	}
	must[any](t)(nil, b.Release(ctx, h))
	if unclaimed != 0 || messages == 0 {
		t.Errorf("%d of %d messages are taken for unclaimed", unclaimed, messages)
	}
}

// TestGrantOfAnotherEntry has a message come for an id under which the request of
// a hold has waited as well.
func TestGrantOfAnotherEntry(t *testing.T) {
	ctx := within(t)
	b := New(plainClient(t, shared), nil)
	t.Cleanup(func() { _ = b.Close(within(t)) })
	h := must[*backend.Hold](t)(b.Acquire(ctx, backend.Request{
		Name: t.Name(), ID: backend.ID{Client: t.Name(), Seq: 1}, Mode: backend.Exclusive, TTL: limit, Observer: silentObserver{},
	}))
	var unclaimed []string
	b.listener.onUnclaimed = func(_ key, id string) { unclaimed = append(unclaimed, id) }
	held, k, reader := stateOf(h).id, lockKey(t.Name()), h.Request
	reader.Mode = backend.Shared
	others := []string{
		b.ids.newID(k, &h.Request, 1, false, nil), b.ids.newID(k, &reader, 0, false, nil), b.ids.newID(k, &h.Request, 0, true, nil), openPart(held) + ".AAAAAAAAAAA",
	}
	for _, id := range append([]string{held}, others...) {
		b.listener.dispatch(fmt.Sprintf("%s %d 1 2 0 %s", id, h.Token, mainKey(t.Name())))
	}
	if !slices.Equal(unclaimed, others) {
		t.Errorf("taken for unclaimed: %q, want %q", unclaimed, others)
	}
	must[any](t)(nil, b.Release(ctx, h))
}

// madeBy is an id of a client of b for a lock.
func madeBy(b *Backend, name string) string {
	r := &backend.Request{Name: name, ID: backend.ID{Client: name, Seq: 1}, Mode: backend.Exclusive, TTL: time.Hour}
	return b.ids.newID(lockKey(name), r, 0, false, nil)
}

// TestGrantAtAnotherLock has the id of a request that waits be let in at another lock, to whose queue somebody has
// copied its own. The message is none of its lock.
func TestGrantAtAnotherLock(t *testing.T) {
	l, ids := newListener(nil, nil, nil, true), newIDSigner()
	unclaimed := 0
	l.onUnclaimed = func(key, string) { unclaimed++ }
	r := &backend.Request{Name: "name", ID: backend.ID{Client: "client", Seq: 1}, TTL: time.Minute}
	w := newWaiter(lockKey(r.Name), ids.newID(lockKey(r.Name), r, 0, false, nil), "")
	l.addWaiter(w)
	l.dispatch(fmt.Sprintf("%s 1 1 2 0 %s", w.id, lockKey("other")))
	if len(w.grants) > 0 || unclaimed != 1 {
		t.Errorf("%d messages of a grant at another lock are believed, %d are taken for unclaimed", len(w.grants), unclaimed)
	}
	l.dispatch(fmt.Sprintf("%s 1 1 2 0 %s", w.id, lockKey(r.Name)))
	if len(w.grants) != 1 || unclaimed != 1 {
		t.Errorf("%d messages of a grant are believed, %d are taken for unclaimed", len(w.grants), unclaimed)
	}
}

// TestUnclaimedGrantIsGivenBack hands the lock to an id of the client that it does
// not wait for any more. The client gives it back at once.
func TestUnclaimedGrantIsGivenBack(t *testing.T) {
	ctx := within(t)
	c := plainClient(t, shared)
	b := New(c, nil)
	t.Cleanup(func() { _ = b.Close(within(t)) })
	id := madeBy(b, t.Name())
	call := acquireScript.callWith(lockKey(t.Name()), 5, id, time.Hour.Milliseconds(), "w")
	call[0], call[1] = "eval", acquireScript.source
	must[any](t)(c.Do(ctx, call...).Result())
	b.listener.dispatch(fmt.Sprintf("%s 1 1 2 0 %s", id, mainKey(t.Name())))
	eventually(t, "the lock is free", func() bool {
		held, err := c.HExists(context.Background(), mainKey(t.Name()), "o").Result()
		return err == nil && !held
	})
}

// TestLateGrantLeavesNothing has the message of a grant come when its hold is
// over: nothing is noted of it on the server.
func TestLateGrantLeavesNothing(t *testing.T) {
	ctx := within(t)
	c := plainClient(t, shared)
	b := New(c, nil)
	id := madeBy(b, t.Name())
	b.listener.dispatch(fmt.Sprintf("%s 1 1 2 0 %s", id, mainKey(t.Name())))
	must[any](t)(nil, b.Close(ctx)) // waits for what is under way
	if left := must[[]string](t)(c.Keys(ctx, mainKey(t.Name())+"*").Result()); len(left) > 0 {
		t.Errorf("left over: %q", left)
	}
}

// TestEachEntryHasAnID has one call enter the queue again and again.
func TestEachEntryHasAnID(t *testing.T) {
	b := New(plainClient(t, shared), nil)
	t.Cleanup(func() { _ = b.Close(within(t)) })
	c := &acquisition{Request: backend.Request{TTL: time.Minute, ID: backend.ID{Client: "client", Seq: 1}}, b: b, key: lockKey(t.Name())}
	seen := make(map[string]bool)
	for range 100 {
		c.renewID()
		if seen[c.id] {
			t.Fatalf("%s is the id of two entries", c.id)
		}
		seen[c.id] = true
	}
}

// TestImplausibleGrant has somebody who has heard the message of a grant send another one
// for the same id, of more than any script grants.
func TestImplausibleGrant(t *testing.T) {
	t.Parallel()
	for what, message := range map[string]func(us int64) (token, expiry int64){
		"for a day":            func(us int64) (int64, int64) { return us, us/1000 + 86400_000 },
		"token far ahead":      func(us int64) (int64, int64) { return 8e15, us/1000 + 5000 },
		"for longer than told": func(us int64) (int64, int64) { return us, us/1000 + 6000 },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			ctx, c := within(t), plainClient(t, shared)
			a, b := New(c, nil), New(c, nil)
			t.Cleanup(func() { _ = a.Close(within(t)) })
			t.Cleanup(func() { _ = b.Close(within(t)) })
			r := backend.Request{
				Name: t.Name(), ID: backend.ID{Client: slug(t) + "a", Seq: 1}, Mode: backend.Exclusive, TTL: limit, Wait: true, Observer: silentObserver{},
			}
			held := must[*backend.Hold](t)(a.Acquire(ctx, r))
			r.ID.Client = slug(t) + "b"
			got := make(chan *backend.Hold, 1)
			go func() { got <- must[*backend.Hold](t)(b.Acquire(ctx, r)) }()
			queue := mainKey(t.Name()) + ":q"
			eventually(t, "it waits", func() bool { return c.ZCard(ctx, queue).Val() == 1 })
			id, us := c.ZRange(ctx, queue, 0, 0).Val()[0], time.Now().UnixMicro()
			token, expiry := message(us)
			b.listener.dispatch(fmt.Sprintf("%s %d %d %d 0 %s", id, token, us, expiry, mainKey(t.Name())))
			select {
			case h := <-got:
				t.Errorf("believed: token %d, for %v", h.Token, h.Granted)
				return
			case <-time.After(100 * time.Millisecond):
			}
			must[any](t)(nil, a.Release(ctx, held))
			must[any](t)(nil, b.Release(ctx, <-got))
		})
	}
}
