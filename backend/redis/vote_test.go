package redis

import (
	"crypto/rand"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/server"
)

// TestPingOfAReplica has a server become a replica. A ping says so: it grants no lock, and
// who waits there with a quorum moves on.
func TestPingOfAReplica(t *testing.T) {
	t.Parallel()
	ctx, c := within(t), plainClient(t, server.StartAll(t, server.Redis{})[0])
	b := New(c, nil)
	ping := func() error { _, err := b.Ping(ctx); return err }
	must[any](t)(nil, ping())
	must[any](t)(c.Do(ctx, "replicaof", "127.0.0.1", "1").Result())
	if err := ping(); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("the ping of a replica: %v", err)
	}
	must[any](t)(nil, b.Close(ctx))
}

// TestRefusedVoteIsNotGivenBack has a server refuse all writes, as one that has become a replica
// does. It has nothing of a vote that it has refused, and is not told to forget that, again and
// again and on a new connection each time, for longer than a lease.
func TestRefusedVoteIsNotGivenBack(t *testing.T) {
	t.Parallel()
	ctx, c := within(t), plainClient(t, server.StartAll(t, server.Redis{})[0])
	must[int64](t)(c.HSet(ctx, bootKey, "since", 1).Result())
	b := newBackend(t, c, nil)
	must[any](t)(c.Do(ctx, "replicaof", "127.0.0.1", "1").Result())
	r := requestOf(t, "client", backend.Exclusive)
	a := b.newAcquisition(&r, &backend.Ballot{Token: uint64(time.Now().UnixMicro())})
	if _, err := a.ask(ctx, "t"); !redis.HasErrorPrefix(err, "READONLY") {
		t.Fatalf("the vote of a replica: %v", err)
	}
	if a.owed || a.doubt {
		t.Error("a vote that was refused is to be given back")
	}
}

// TestVoteOfAServerThatForgot has a server with a key of the lock, but none that a
// vote has written since it has its data. The client asks by either script.
func TestVoteOfAServerThatForgot(t *testing.T) {
	ctx := within(t)
	admin := plainClient(t, shared)
	for _, member := range []bool{false, true} {
		must[int64](t)(admin.HSet(ctx, bootKey, "since", 1).Result())
		b, _ := behindProxy(t)
		b.member = member
		name := t.Name() + rand.Text() // no other run has refused an id
		seq := uint64(0)
		vote := func(rejoin time.Duration) (*backend.Hold, error) {
			seq++
			return b.Vote(ctx, backend.Request{
				Mode: backend.Exclusive, Name: name, ID: backend.ID{Client: "client", Seq: seq}, TTL: 3 * time.Second,
			}, backend.Ballot{Token: uint64(time.Now().UnixMicro()), Rejoin: rejoin})
		}
		for range 2 {
			must[any](t)(nil, b.Release(ctx, must[*backend.Hold](t)(vote(0))))
		}
		if !b.free.has(lockKey(name)) {
			t.Fatal("the lock was not free the last time")
		}
		must[int64](t)(admin.HDel(ctx, mainKey(name), "t").Result())
		must[int64](t)(admin.HSet(ctx, bootKey, "since", time.Now().UnixMicro()).Result())
		var not *backend.NotReadyError
		if _, err := vote(time.Hour); !errors.As(err, &not) {
			t.Errorf("member %v: the error is %v, want that it takes no part yet", member, err)
		}
	}
}

// TestVotesLeaveAServerThatRestarts has a server restart, and grant nothing for a while, where
// votes wait in its queue. They leave it for another server when they ask next, and nobody
// looks at the lock again and again until then. Who counts on this server alone stays.
func TestVotesLeaveAServerThatRestarts(t *testing.T) {
	t.Parallel()
	ctx, s := within(t), server.Start(t, server.Redis{})
	c := plainClient(t, s)
	must[int64](t)(c.HSet(ctx, bootKey, "since", 1).Result())
	b := newBackend(t, plainClient(t, s), nil)
	vote := func(client string, wait bool) (*backend.Hold, error) {
		r := requestOf(t, client, backend.Exclusive)
		r.Wait = wait
		return b.Vote(ctx, r, backend.Ballot{Token: uint64(time.Now().UnixMicro()), Rejoin: time.Hour})
	}
	h := must[*backend.Hold](t)(vote("holder", false))
	left := make(chan error, 1)
	go func() { _, err := vote("next", true); left <- err }()
	eventually(t, "it waits", func() bool { return waiting(t, c) == 1 })
	k, alone, second := lockKey(t.Name()), "w60000:alone:1.AAAAAAAAAAA", "w60000v3600000:second:1.AAAAAAAAAAA"
	hears := func(id, mode, want string) {
		t.Helper()
		if a := must[answer](t)(b.run(ctx, limit, acquireScript, acquireScript.callWith(k, 5, id, 60000, mode))); a.status() != want {
			t.Errorf("mode %s: %s hears %v", mode, id, a.status())
		}
	}
	hears(second, "w", "QUEUED")
	must[int64](t)(c.HSet(ctx, bootKey, "since", time.Now().UnixMicro()).Result())
	hears(second, "p", "NOT_READY") // though the lock is held
	must[any](t)(nil, b.Release(ctx, h))
	hears(alone, "w", "QUEUED")
	hears(alone, "p", "QUEUED")
	a := must[answer](t)(b.run(ctx, limit, checkScript, checkScript.call(k.args(5)))) // it tells the head
	if soon := fromMillis(a.number); soon > 0 {
		t.Errorf("the lock is looked at again in %v", soon)
	}
	var not *backend.NotReadyError
	select {
	case err := <-left:
		if !errors.As(err, &not) {
			t.Errorf("who waits hears %v, want that the server takes no part yet", err)
		}
	case <-time.After(limit / 12):
		t.Error("who waits is not told that the server takes no part yet")
	}
	if left := must[[]string](t)(c.ZRange(ctx, mainKey(t.Name())+":q", 0, -1).Result()); len(left) != 1 || left[0] != alone {
		t.Errorf("%v wait", left)
	}
}
