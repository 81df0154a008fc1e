package redis

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/server"
)

// posted posts commands while another is under way, so that they leave as one
// pipeline, and returns the reply or the error to each.
func posted(t *testing.T, p *pipeline, k kind, cmds ...[]any) (said []any) {
	t.Helper()
	ctx := within(t)
	p.width = 1
	rest(t, p)
	p.mu.Lock()
	p.starting = true // nobody takes the queue
	p.mu.Unlock()
	var sent []*command
	for _, args := range cmds {
		sent = append(sent, p.enqueue(ctx, limit, args, k))
	}
	p.mu.Lock()
	p.starting = false
	p.startSender()
	p.mu.Unlock()
	for _, c := range sent {
		reply, err := c.await(ctx, limit)
		if err != nil {
			said = append(said, err)
			continue
		}
		said = append(said, reply)
	}
	return said
}

// TestUnsent has the caller of a command go before that is sent. The server cannot have carried
// it out, so nothing has to be taken back, and no id refused.
func TestUnsent(t *testing.T) {
	s := server.Start(t, server.Redis{})
	p := newPipeline(plainClient(t, s), 0)
	p.starting = true // nobody takes the queue
	ctx, cancel := context.WithCancel(context.Background())
	c := p.enqueue(ctx, limit, []any{"incr", "x"}, ordinary)
	cancel()
	if _, err := c.await(ctx, limit); !isUnsent(err) || !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
	p.mu.Lock()
	p.starting = false
	p.startSender()
	p.mu.Unlock()
	rest(t, p)
	if n := plainClient(t, s).Exists(context.Background(), "x").Val(); n != 0 {
		t.Error("it was sent")
	}
}

// TestExhausted has a program use the one connection that its client may have (MaxActiveConns). A command that
// gets none is refused at once, and was not sent.
func TestExhausted(t *testing.T) {
	s := server.Start(t, server.Redis{})
	client := redis.NewClient(&redis.Options{
		Addr: s.Addr(), DisableIdentity: true, MaxRetries: -1, MaxActiveConns: 1, PipelinePoolSize: -1,
	})
	t.Cleanup(func() { _ = client.Close() })
	ctx := within(t)
	taken := client.Conn()
	must[string](t)(taken.Ping(ctx).Result())
	p := newPipeline(client, 0)
	if _, err := p.do(ctx, limit, []any{"incr", "x"}, ordinary); !errors.Is(err, redis.ErrPoolExhausted) || !isUnsent(err) {
		t.Errorf("the error is %v", err)
	}
	_ = taken.Close()
	rest(t, p)
	if n := client.Exists(ctx, "x").Val(); n != 0 {
		t.Error("it was sent")
	}
}

// TestJoin takes and releases several locks at once. They share commands, and each
// has the answer that it would have had alone. On a node of a cluster, where keys
// must share a slot, everybody has a command of their own.
func TestJoin(t *testing.T) {
	s := server.Start(t, server.Redis{})
	p, admin := newPipeline(plainClient(t, s), 0), plainClient(t, s)
	ctx := within(t)
	for _, sc := range []*script{grabScript, dropScript} {
		must[string](t)(admin.ScriptLoad(ctx, sc.source).Result())
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
		grabs = append(grabs, grabScript.callWith(lockKey(name), 1, "w:"+name, 30_000))
		drops = append(drops, dropScript.callWith(lockKey(name), 1, "w:"+name))
	}
	run := func(commands [][]any, want int64) (said []any) {
		t.Helper()
		before := commandsOf(t, s)["evalsha"]
		said = posted(t, p, joinable, commands...)
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
	said = run([][]any{grabs[0], drops[0], drops[2], drops[1], drops[4]}, 2)
	if want := []any{int64(0), int64(0), int64(-1), int64(0), int64(0)}; !reflect.DeepEqual(said, want) {
		t.Errorf("releases beside a request: %v, want %v", said, want)
	}

	p = newCluster(nil, 0).connect(plainClient(t, s))
	run(grabs[:2], 2)
}

// TestNoJoinAcrossServers has a client that sends a command where its first key
// says: other locks in it would be taken on the wrong server.
func TestNoJoinAcrossServers(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{})
	t.Cleanup(func() { _ = ring.Close() })
	if p := newPipeline(ring, 0); !p.oneLock {
		t.Error("locks on different servers would share a command")
	}
}

// TestJoinOfAnUnknownScript has a server forget its scripts. Everybody who shared
// a command learns that, and is free to load it.
func TestJoinOfAnUnknownScript(t *testing.T) {
	s := server.Start(t, server.Redis{})
	said := posted(t, newPipeline(plainClient(t, s), 0), joinable,
		dropScript.callWith(lockKey("a"), 1, "w:a"), dropScript.callWith(lockKey("b"), 1, "w:b"))
	for _, one := range said {
		if err, _ := one.(error); !isUnknownScript(err) {
			t.Errorf("told %v", one)
		}
	}
}

// TestJoinWithoutAnAnswer has a reply that does not fit, and none at all.
func TestJoinWithoutAnAnswer(t *testing.T) {
	for _, whole := range []*request{
		{reply: []any{int64(1)}}, {reply: int64(1)}, {reply: []any{int64(1), int64(2), int64(3)}}, {err: errNoReply},
	} {
		want := errGarbled
		if whole.err != nil {
			want = whole.err
		}
		whole.members = []*command{newCommand(context.Background(), nil), newCommand(context.Background(), nil)}
		whole.deliver()
		for _, member := range whole.members {
			if !errors.Is(member.err, want) {
				t.Errorf("told %v, want %v", member.err, want)
			}
		}
	}
}

// TestDeniedConnectionOfSeveral has a server deny something to each new connection. All
// whose commands would have left together are told that, as one alone is.
func TestDeniedConnectionOfSeveral(t *testing.T) {
	s := server.Start(t, server.Redis{})
	must[any](t)(plainClient(t, s).Do(within(t), "acl", "setuser", "nameless", "on", ">secret", "~*", "+@all", "-client").Result())
	c := redis.NewClient(&redis.Options{
		Addr: s.Addr(), Username: "nameless", Password: "secret", ClientName: "program", DisableIdentity: true, MaxRetries: -1,
	})
	t.Cleanup(func() { _ = c.Close() })
	for _, one := range posted(t, newPipeline(c, 0), ordinary, []any{"ping"}, []any{"exists", "a"}) {
		if err, _ := one.(error); kindOf(err) != backend.ErrAuth {
			t.Errorf("told %v", one)
		}
	}
}
