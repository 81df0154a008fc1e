package redis

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/internal/server"
)

// together posts commands while w is busy, so that they leave as one pipeline,
// and returns the reply or the error to each.
func together(t *testing.T, w *wire, commands ...[]any) (said []any) {
	t.Helper()
	ctx := within(t)
	must[any](t)(w.do(ctx, limit, []any{"ping"}, ordinary))
	var e early
	eventually(t, "nothing is under way", func() (ok bool) { e, ok = w.lend(); return ok })
	e.post(limit, []any{"ping"})
	var posted []*parcel
	for _, args := range commands {
		posted = append(posted, w.post(limit, args, prompt))
	}
	must[any](t)(e.result())
	for _, p := range posted {
		reply, err := p.await(ctx, limit)
		if err != nil {
			said = append(said, err)
			continue
		}
		said = append(said, reply)
	}
	return said
}

// TestJoin takes and releases several locks at once. They share commands, and each
// has the answer that it would have had alone. On a node of a cluster, where keys
// must share a slot, everybody has a command of their own.
func TestJoin(t *testing.T) {
	s := server.Start(t, server.Redis{})
	w, admin := linked(t, s), plainClient(t, s)
	ctx := within(t)
	for _, sc := range []*script{grabScript, dropScript} {
		must[string](t)(admin.ScriptLoad(ctx, sc.source.(string)).Result())
	}
	// What a lock that was used leaves: a token, for as long as it needs.
	far := fmt.Sprint(uint64(1) << 43)
	names := []string{"a", "b", "held", "list", "c"}
	for _, name := range names {
		if name == "list" {
			must[any](t)(admin.LPush(ctx, mainKey(name), "x").Result())
			continue
		}
		must[any](t)(admin.HSet(ctx, mainKey(name), "t", 1, "d", far).Result())
	}
	must[any](t)(admin.HSet(ctx, mainKey("held"), "o", "w:other", "n", 1, "e", far).Result())

	var grabs, drops [][]any
	for _, name := range names {
		grabs = append(grabs, grabScript.of(lockKey(name), 1, "w:"+name, 30_000))
		drops = append(drops, dropScript.of(lockKey(name), 1, "w:"+name))
	}
	run := func(commands [][]any, want int64) (said []any) {
		t.Helper()
		before := commandsOf(t, s)["evalsha"]
		said = together(t, w, commands...)
		if n := commandsOf(t, s)["evalsha"] - before; n != want {
			t.Errorf("%d scripts, want %d", n, want)
		}
		return said
	}
	said := run(grabs, 1)
	for i, name := range names {
		token, _ := said[i].(int64)
		holder := admin.HGet(ctx, mainKey(name), "o").Val()
		free := name != "held" && name != "list"
		if got := holder == "w:"+name; got != free || (token > 0) != free {
			t.Errorf("%s: held by %q, the answer is %v", name, holder, said[i])
		}
	}
	ballot := grabScript.of(lockKey("a"), 1, "w:vote", 30_000, 1, 1)
	said = run([][]any{ballot, drops[0], drops[2], drops[1], ballot, drops[4]}, 2)
	if want := []any{int64(0), int64(0), int64(-1), int64(0), int64(0), int64(0)}; !reflect.DeepEqual(said, want) {
		t.Errorf("releases beside two votes: %v, want %v", said, want)
	}

	cluster := newNodes(nil, 0)
	cluster.own = true
	w = cluster.connect(plainClient(t, s))
	t.Cleanup(cluster.close)
	run(grabs[:2], 2)
}

// TestNoJoinAcrossServers has a client that sends a command where its first key
// says: other locks in it would be taken on the wrong server.
func TestNoJoinAcrossServers(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{})
	t.Cleanup(func() { _ = ring.Close() })
	if w := newWire(ring, 0); !w.oneLock {
		t.Error("locks on different servers would share a command")
	}
}

// TestJoinOfAnUnknownScript has a server forget its scripts. Everybody who shared
// a command learns that, and is free to load it.
func TestJoinOfAnUnknownScript(t *testing.T) {
	s := server.Start(t, server.Redis{})
	said := together(t, linked(t, s),
		dropScript.of(lockKey("a"), 1, "w:a"), dropScript.of(lockKey("b"), 1, "w:b"))
	for _, one := range said {
		if err, _ := one.(error); !unknownScript(err) {
			t.Errorf("told %v", one)
		}
	}
}

// TestJoinWithoutAnAnswer has a reply that does not fit, and none at all.
func TestJoinWithoutAnAnswer(t *testing.T) {
	for _, whole := range []*parcel{
		{reply: []any{int64(1)}}, {reply: int64(1)}, {reply: []any{int64(1), int64(2), int64(3)}}, {err: errNoReply},
	} {
		want := errGarbled
		if whole.err != nil {
			want = whole.err
		}
		whole.parts = []*parcel{newParcel(nil), newParcel(nil)}
		parts := append([]*parcel(nil), whole.parts...)
		whole.done = make(chan struct{}, 1)
		whole.arrive()
		for _, p := range parts {
			if _, err := p.await(context.Background(), limit); !errors.Is(err, want) {
				t.Errorf("told %v, want %v", err, want)
			}
		}
	}
}
