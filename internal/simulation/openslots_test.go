package simulation

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// TestForgottenMoves has a shard get another master while the slot of a lock moves that one client has and
// another waits for, of which the new master does not know. Where the slot leaves, two have the lock; where it
// comes to, nobody can have it any more until somebody mends that.
func TestForgottenMoves(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	shard := homeOf(slotOf(lockKey(nameOf(0))))
	for _, c := range []struct {
		name  string
		kind  string
		fails int
		both  bool // two clients believe that they have the lock at one time
	}{
		{"a planned failover where the slot leaves", "failover", shard, true},
		{"another takes over where the slot leaves", "takeover", shard, true},
		{"a planned failover where the slot comes to", "failover", (shard + 1) % shards, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &Plan{
				Backend: "redis", Servers: 1, Names: 1, TTL: 10 * s, Length: length, Latency: ms,
				Cluster: true, Replica: true, Lag: 10 * ms, Word: 50 * ms, Forgetful: true,
				Clients: []Party{
					{Workers: [][]Op{{{Call: "lock", Names: []int{0}, Hold: 25 * s, Unlock: "live"}}}},
					{Workers: [][]Op{{{Pause: 5 * s, Call: "lock", Names: []int{0}, Hold: 5 * s, Unlock: "live"}}}},
				},
				Faults: []Fault{
					{Kind: "slot-move", At: 2 * s, For: 10 * s, Client: -1, Server: shard},
					{Kind: c.kind, At: 5200 * ms, Client: -1, Server: c.fails},
				},
			}
			r := Run(t, p)
			says := func(party int, text string) int {
				return slices.IndexFunc(r.History, func(e Event) bool { return e.Party == party && strings.HasPrefix(e.Text, text) })
			}
			granted, over := says(1, "lock a: token"), says(0, "a over")
			if over < 0 || c.both != (granted >= 0 && granted < over) || len(r.Violations) > 0 {
				t.Errorf("%v\n%s", r.Violations, r.Table(2))
			}
		})
	}
}

// The names of those who wait have left for the node that a slot comes to, and the queue has not, as another takes over that
// knows nothing of the move. Who waits there is gone from the queue when its name comes back.
func TestForgottenMoveOfPartOfALock(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	shard := homeOf(slotOf(lockKey(nameOf(0))))
	p := &Plan{
		Seed: 4, Backend: "redis", Servers: 1, Names: 1, TTL: 30 * s, Length: length, Latency: 10 * ms, Jitter: 10 * ms,
		Cluster: true, Replica: true, Lag: 10 * ms, Word: ms, Forgetful: true,
		Clients: []Party{
			{Workers: [][]Op{{{Call: "rlock", Names: []int{0}, Hold: 14 * s, Unlock: "live"}}}},
			{Workers: [][]Op{{{Pause: s, Call: "lock", Names: []int{0}, Unlock: "live"}}}},
		},
		Faults: []Fault{
			{Kind: "slot-move", At: 5 * s, For: s, Client: -1, Server: shard},
			{Kind: "failover", At: 5250 * ms, Client: -1, Server: shard},
		},
	}
	if r := Run(t, p); len(r.Violations) > 0 {
		t.Errorf("%v\n%s", r.Violations, r.Table(2))
	}
}

// A move that was forgotten says nothing about locks in other slots.
func TestForgottenMoveOfAnotherSlot(t *testing.T) {
	w := &world{plan: &Plan{Backend: "redis", Servers: 1, Names: 2, Cluster: true, TTL: time.Second}, layout: &layout{}}
	r := newRegister(w)
	slot := slotOf(lockKey("a"))
	now := time.Now()
	r.opens(touched{kind: "forgotten-slot", client: -1, server: homeOf(slot), from: now, to: now, slots: []int{slot}})
	belief := func(name string) *belief {
		return &belief{name: name, ttl: time.Second, asked: now.Add(-time.Millisecond)}
	}
	if !r.mayBeForgotten(belief("a")) || r.mayBeForgotten(belief("b")) {
		t.Error("which lock may be forgotten is not that of the slot")
	}
	if !r.dataLostOf("a") || r.dataLostOf("b") {
		t.Error("whose token may be forgotten is not that of the slot")
	}
}

// TestForgottenMoveCommands has a Redis cluster and a simulated one get other masters while a slot moves, and
// compares what all nodes say then.
func TestForgottenMoveCommands(t *testing.T) {
	for _, side := range []string{"where the slot leaves", "where the slot comes to"} {
		t.Run(side, func(t *testing.T) {
			tw := newTwin(t)
			tw.w.plan.Forgetful = !tw.replicatesMoves()
			at := homeOf(slotOf("{a}"))
			to := (at + 1) % shards
			tw.write("{a}h1", "{a}h2")
			tw.begin(slotOf("{a}"), at, to)
			tw.carry("{a}h1", at, to)
			shard := at
			if side == "where the slot comes to" {
				shard = to
			}
			tw.failover(shard)
			own := "{" + tags[slices.IndexFunc(tags, func(tag string) bool { return homeOf(slotOf("{"+tag+"}")) != at })] + "}h1"
			for node := range tw.real {
				for _, asking := range []bool{false, true} {
					for _, args := range [][]any{
						{"EXISTS", "{a}h1"}, {"EXISTS", "{a}h2"}, {"EXISTS", "{a}h1", "{a}h2"}, {"EXISTS", "{a}h3"}, {"EXISTS", own},
						{"EVAL", "return redis.call('EXISTS', KEYS[1])", 1, "{a}h1"},
					} {
						tw.agree(node, asking, args)
					}
				}
			}
		})
	}
}

// agree waits until both nodes say the same, which have to hear of a change first.
func (tw *twin) agree(node int, asking bool, args []any) {
	tw.t.Helper()
	for end := time.Now().Add(gossip); ; time.Sleep(10 * time.Millisecond) {
		got, want := tw.replies(node, asking, args)
		if reflect.DeepEqual(got, want) {
			return
		}
		if time.Now().After(end) {
			tw.t.Fatalf("node %d, asking %v, %v: got %v, want %v", node, asking, args, got, want)
		}
	}
}

// replicatesMoves reports whether the replicas of the real cluster know which slots move.
func (tw *twin) replicatesMoves() bool {
	info, err := tw.real[0].Info(tw.ctx, "server").Result()
	if err != nil {
		tw.t.Fatal(err)
	}
	_, version, found := strings.Cut(info, "valkey_version:")
	major := 0
	_, _ = fmt.Sscan(strings.ReplaceAll(version, ".", " "), &major)
	return found && major >= 8
}

// write has keys at the node that has them.
func (tw *twin) write(keys ...string) {
	for _, k := range keys {
		for _, c := range [][]*goredis.Client{tw.real, tw.simulated} {
			if err := c[homeOf(slotOf(k))].HSet(tw.ctx, k, "f", "1").Err(); err != nil {
				tw.t.Fatal(err)
			}
		}
	}
}

// failover has the replica of a shard take over from its master, which is there. Where too few masters have
// voted in time, on a busy machine, they do not vote for it again soon: it then does without them.
func (tw *twin) failover(shard int) {
	replica := tw.real[shards+shard]
	var asked time.Time
	how := []any{"cluster", "failover"}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		info, err := replica.Info(tw.ctx, "replication").Result()
		if err == nil && strings.Contains(info, "role:master") {
			break
		}
		if time.Now().After(end) {
			tw.t.Fatal("the replica does not take over: ", info, err)
		}
		if time.Since(asked) > 6*time.Second { // one that is under way, for 5 s at most, would begin anew
			asked = time.Now()
			_ = replica.Do(tw.ctx, how...).Err()
			how = []any{"cluster", "failover", "takeover"}
		}
	}
	tw.w.handOver(shard)
}
