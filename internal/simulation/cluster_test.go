package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	real "github.com/dlock-go/dlock/internal/server"
)

// A twin is a real cluster and a simulated one, of which the same is asked.
type twin struct {
	t         *testing.T
	ctx       context.Context
	d         *draw
	w         *world
	real      []*goredis.Client // the masters first
	simulated []*goredis.Client
	index     *strings.Replacer // the address of a node becomes its number
	ids       []string
	moves     map[string]*move // by tag
	heard     map[string][2]*goredis.PubSub
}

// A move is where the slot of a tag is.
type move struct {
	at, to int
	open   bool
}

var tags = []string{"a", "b", "c", "d"}

// TestClusterCommands has a Redis cluster and a simulated one answer the same random
// commands at random nodes while slots move: each reply must be the same.
func TestClusterCommands(t *testing.T) {
	tw := newTwin(t)
	for range 3000 {
		switch {
		case tw.d.often(8):
			tw.move(pick(tw.d, tags...))
		case tw.d.often(10):
			tw.subscribe(pick(tw.d, tags...))
		default:
			tw.ask()
		}
	}
}

func newTwin(t *testing.T) *twin {
	c := real.StartCluster(t, real.Redis{}, 30*time.Second)
	w := &world{plan: &Plan{Backend: "redis", Servers: 1, Cluster: true, Replica: true}, net: newNetwork(1)}
	w.reg = newRegister(w)
	w.start()
	tw := &twin{
		t: t, ctx: t.Context(), d: &draw{rand.New(rand.NewPCG(1, 2))}, w: w,
		moves: make(map[string]*move), heard: make(map[string][2]*goredis.PubSub),
	}
	names := []string{}
	for i, addr := range c.Addrs() {
		names = append(names, addr, fmt.Sprint("node", i), w.nodes[i].address(), fmt.Sprint("node", i))
		client := func(dial func(context.Context, string, string) (net.Conn, error)) *goredis.Client {
			r := goredis.NewClient(&goredis.Options{Addr: addr, Dialer: dial, DisableIdentity: true, Protocol: 2, MaxRetries: -1})
			t.Cleanup(func() { _ = r.Close() })
			return r
		}
		tw.real = append(tw.real, client(nil))
		tw.simulated = append(tw.simulated, client(func(context.Context, string, string) (net.Conn, error) {
			way := w.net.way(0, i)
			way.change(func() { way.base = 0 })
			l := way.connect(false, addr)
			w.nodes[i].serve(l.server)
			return l.client, nil
		}))
		id, err := tw.real[i].Do(tw.ctx, "cluster", "myid").Text()
		if err != nil {
			t.Fatal(err)
		}
		tw.ids = append(tw.ids, id)
	}
	tw.index = strings.NewReplacer(names...)
	for _, tag := range tags {
		at := homeOf(slotOf("{" + tag + "}"))
		tw.moves[tag] = &move{at: at, to: at}
	}
	return tw
}

// ask asks the same node of both, which may be asked for a slot that is coming.
func (tw *twin) ask() {
	node := tw.d.IntN(shards)
	asking := tw.d.often(30)
	args := tw.command()
	got, want := tw.replies(node, asking, args)
	for end := time.Now().Add(gossip); isMoved(want) && !reflect.DeepEqual(got, want) && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
		_, want = tw.replies(node, asking, args)
	}
	if !reflect.DeepEqual(got, want) {
		tw.t.Fatalf("node %d, asking %v, %v: got %v, want %v", node, asking, args, got, want)
	}
}

// replies are what both say to a command at a node: the simulated one, and the real one.
func (tw *twin) replies(node int, asking bool, args []any) (got, want any) {
	ask := func(c *goredis.Client) any {
		conn := c.Conn()
		defer conn.Close()
		if asking {
			if err := conn.Do(tw.ctx, "asking").Err(); err != nil {
				tw.t.Fatal(err)
			}
		}
		reply, err := conn.Do(tw.ctx, args...).Result()
		if err == nil || err == goredis.Nil {
			return reply
		}
		said := tw.index.Replace(err.Error())
		if word, _, _ := strings.Cut(said, " "); word == "ERR" {
			return word
		}
		return said
	}
	return ask(tw.simulated[node]), ask(tw.real[node])
}

// gossip is within what time the nodes of a real cluster agree. What one has said before a
// slot left it may come as late as after that.
const gossip = 30 * time.Second

func isMoved(reply any) bool {
	text, _ := reply.(string)
	return strings.HasPrefix(text, "MOVED ")
}

func (tw *twin) key() string {
	return "{" + pick(tw.d, tags...) + "}" + pick(tw.d, "h1", "h2", "z1")
}

// command draws a command, or a script that runs one.
func (tw *twin) command() []any {
	key := tw.key()
	near := key[:3] + pick(tw.d, "h1", "h2", "z1")
	other := near
	if tw.d.often(10) {
		other = tw.key()
	}
	list := [][]any{
		{"EXISTS", key, other}, {"EXISTS", key}, {"DEL", key, other}, {"TYPE", key},
		{"HSET", key[:3] + "h1", "f", tw.d.IntN(9)}, {"HSET", key[:3] + "h2", "f", tw.d.IntN(9)},
		{"HMGET", key[:3] + "h1", "f"}, {"ZADD", key[:3] + "z1", tw.d.IntN(9), "m"}, {"ZCARD", key[:3] + "z1"},
		{"SPUBLISH", key[:3] + "channel", "text"}, {"PUBSUB", "SHARDNUMSUB", key[:3] + "channel"},
	}
	args := pick(tw.d, list...)
	if args[0] == "PUBSUB" || !tw.d.often(50) {
		return args
	}
	keys := []any{key, other}[:1+tw.d.IntN(2)]
	if tw.d.often(20) {
		keys = nil
	}
	script := []any{"EVAL", "return redis.call(unpack(ARGV))", len(keys)}
	return append(append(script, keys...), args...)
}

// move goes on with the move of a slot, or begins one.
func (tw *twin) move(tag string) {
	m, slot := tw.moves[tag], slotOf("{"+tag+"}")
	if !m.open {
		m.open, m.to = true, (m.at+1+tw.d.IntN(shards-1))%shards
		tw.begin(slot, m.at, m.to)
		return
	}
	keys, err := tw.real[m.at].ClusterGetKeysInSlot(tw.ctx, slot, 10).Result()
	if err != nil {
		tw.t.Fatal(err)
	}
	if len(keys) > 0 {
		tw.carry(pick(tw.d, keys...), m.at, m.to)
		return
	}
	for _, node := range []int{m.to, m.at, shards - m.to - m.at} {
		tw.do(node, "cluster", "setslot", slot, "node", tw.ids[m.to])
	}
	c := claim{m.to, tw.w.layout.nextEpoch()}
	for _, s := range tw.w.nodes {
		s.hearsSlot(slot, c)
	}
	m.open, m.at = false, m.to
	if both, found := tw.heard[tag]; found {
		said, _ := tw.told(both)
		tw.compare(said, "after the slot has gone")
		delete(tw.heard, tag)
	}
}

// do has a real node execute a command.
func (tw *twin) do(node int, args ...any) {
	tw.t.Helper()
	if err := tw.real[node].Do(tw.ctx, args...).Err(); err != nil {
		tw.t.Fatal(args, err)
	}
}

// begin has both know that a slot moves.
func (tw *twin) begin(slot, at, to int) {
	tw.do(to, "cluster", "setslot", slot, "importing", tw.ids[at])
	tw.do(at, "cluster", "setslot", slot, "migrating", tw.ids[to])
	tw.w.opensMove(slot, at, to)
}

// carry moves a key.
func (tw *twin) carry(key string, at, to int) {
	host, port, _ := net.SplitHostPort(tw.real[to].Options().Addr)
	tw.do(at, "migrate", host, port, key, 0, 5000, "replace")
	tw.w.nodes[at].give(tw.w.nodes[to], slotOf(key), nil, func([]string) []string { return []string{key} })
}

// subscribe begins a subscription on the same node of both, or ends it.
func (tw *twin) subscribe(tag string) {
	if both, found := tw.heard[tag]; found {
		delete(tw.heard, tag)
		for i, c := range [][]*goredis.Client{tw.real, tw.simulated} {
			_ = both[i].Close()
			for c[tw.moves[tag].at].PubSubShardNumSub(tw.ctx, "{"+tag+"}channel").Val()["{"+tag+"}channel"] > 0 {
				time.Sleep(time.Millisecond) // until the server has noticed
			}
		}
		return
	}
	node := tw.d.IntN(shards)
	for end := time.Now().Add(gossip); ; {
		both := [2]*goredis.PubSub{}
		for i, c := range []*goredis.Client{tw.real[node], tw.simulated[node]} {
			both[i] = c.SSubscribe(tw.ctx, "{"+tag+"}channel")
			tw.t.Cleanup(func() { _ = both[i].Close() })
		}
		said, lives := tw.told(both)
		if said[0] != said[1] && strings.Contains(said[0], "MOVED") && time.Now().Before(end) {
			time.Sleep(10 * time.Millisecond) // until the real node has heard who has the slot
			continue
		}
		tw.compare(said, "subscribe")
		if lives {
			tw.heard[tag] = both
		}
		return
	}
}

// compare checks that both say the same.
func (tw *twin) compare(said [2]string, when string) {
	if said[0] != said[1] {
		tw.t.Fatalf("%s: got %v, want %v", when, said[1], said[0])
	}
}

// told reads what both subscriptions are told next, and reports whether they live.
func (tw *twin) told(both [2]*goredis.PubSub) (said [2]string, lives bool) {
	lives = true
	for i, p := range both {
		for {
			m, err := p.ReceiveTimeout(tw.ctx, 5*time.Second)
			if _, ok := m.(*goredis.Message); ok {
				continue
			}
			said[i] = tw.index.Replace(fmt.Sprint(m, err))
			s, ok := m.(*goredis.Subscription)
			lives = lives && ok && s.Kind == "ssubscribe"
			break
		}
	}
	return said, lives
}

// What two servers have of a lock together is as new as what either of them has.
func TestLockOnTwoServers(t *testing.T) {
	now := time.Now()
	l := &lockLog{last: map[int]truth{0: {at: now, token: 7}, 1: {at: now.Add(time.Second), queue: []string{"w"}}}}
	both := l.at([]*server{{index: 0}, {index: 1}})
	if !both.at.Equal(now.Add(time.Second)) || both.token != 7 || len(both.queue) != 1 {
		t.Errorf("%+v", both)
	}
}
