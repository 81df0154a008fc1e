package redlock

import (
	"context"
	"flag"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/faultnet"
	"github.com/dlock-go/dlock/internal/server"
)

var (
	table = flag.Int("table", 0, "measure a contended lock on so many nodes, and print a table")
	trip  = flag.Duration("trip", 0, "how long the nodes of the table are away, there and back")
	each  = flag.Duration("each", 500*time.Millisecond, "for how long each condition of a contended lock is measured")
)

// A fault is what happens to one node. It returns what ends it.
type fault struct {
	name  string
	begin func(t testing.TB, n *place) (end func())
}

var faults = []fault{
	{"dead", func(t testing.TB, n *place) func() {
		ok(t, n.server.Kill())
		return func() {
			ok(t, n.server.Restart(false))
			vouchFor(t, n.server)
		}
	}},
	{"hung", func(t testing.TB, n *place) func() {
		ok(t, n.server.Pause())
		return func() { ok(t, n.server.Resume()) }
	}},
	{"slow", func(_ testing.TB, n *place) func() {
		n.slowBy(30*time.Millisecond, 10*time.Millisecond)
		return func() { n.slowBy(0, 0) }
	}},
	{"flapping", func(t testing.TB, n *place) func() {
		done := make(chan struct{})
		var all sync.WaitGroup
		all.Go(func() {
			for {
				ok(t, n.server.Pause())
				over := elapsed(done, 300*time.Millisecond)
				ok(t, n.server.Resume())
				if over || elapsed(done, 300*time.Millisecond) {
					return
				}
			}
		})
		return func() { close(done); all.Wait() }
	}},
}

// A place is a node behind a proxy.
type place struct {
	server *server.Server
	proxy  *faultnet.Proxy
	trip   time.Duration // of a request and its answer between the clients and the node
}

// slowBy delays what goes each way, beside the distance.
func (n *place) slowBy(latency, jitter time.Duration) {
	n.proxy.Delay(faultnet.BothWays, n.trip/2+latency, jitter)
}

// elapsed waits for d, and reports whether done was closed meanwhile.
func elapsed(done <-chan struct{}, d time.Duration) bool {
	select {
	case <-done:
		return true
	case <-time.After(d):
		return false
	}
}

// A site is some nodes and their clients.
type site struct {
	nodes   []*place
	clients []*dlock.Client
	names   int // so far
}

func newSite(t testing.TB, nodes, clients int, trip time.Duration) *site {
	masters := startMasters(t, nodes)
	vouchFor(t, masters...)
	s := &site{}
	var hosts []string
	for _, m := range masters {
		p, err := faultnet.Listen(m.Addr())
		ok(t, err)
		t.Cleanup(func() { _ = p.Close() })
		n := &place{m, p, trip}
		n.slowBy(0, 0)
		s.nodes, hosts = append(s.nodes, n), append(hosts, p.Addr())
	}
	for range clients {
		c := openURL(t, "redlock://"+strings.Join(hosts, ","), &dlock.Options{TTL: 10 * time.Second})
		cycle(t, c, "warm")
		s.clients = append(s.clients, c)
	}
	return s
}

// A pace is how fast a contended lock went round.
type pace struct {
	perSecond float64
	longest   time.Duration // of all waits
}

func (p pace) String() string {
	return fmt.Sprintf("%.0f/s, longest wait %v", p.perSecond, p.longest.Round(100*time.Microsecond))
}

// contend has n clients take one lock in turn for d, and until each has had it so often.
func (s *site) contend(t testing.TB, n int, name string, d time.Duration, turns int) pace {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d+wait)
	defer cancel()
	start := time.Now()
	var cycles, longest, last atomic.Int64
	var inside, behind atomic.Int32
	behind.Store(int32(n))
	var all sync.WaitGroup
	for _, c := range s.clients[:n] {
		all.Go(func() {
			for turn := 0; behind.Load() > 0 || time.Since(start) < d; turn++ {
				if turn == turns {
					behind.Add(-1)
				}
				began := time.Now()
				l, err := c.Mutex(name).Lock(ctx)
				wait := int64(time.Since(began))
				for old := longest.Load(); wait > old && !longest.CompareAndSwap(old, wait); old = longest.Load() {
				}
				if err != nil {
					t.Errorf("lock, after %d turns: %v", turn, err)
					cancel()
					return
				}
				if token := int64(l.Token()); inside.Add(1) != 1 || last.Swap(token) >= token {
					t.Error("two holders, or a token that does not grow")
				}
				cycles.Add(1)
				inside.Add(-1)
				if err := l.Unlock(context.Background()); err != nil {
					t.Errorf("unlock: %v", err)
				}
			}
		})
	}
	all.Wait()
	return pace{float64(cycles.Load()) / time.Since(start).Seconds(), time.Duration(longest.Load())}
}

// A lock that many want goes round with as many nodes in trouble as a majority survives, and
// after that: one holder at a time, with tokens that grow, and everybody has its turns. How
// fast that is depends on the machine: the test of that name of the quorum has simulated time.
func TestContendedWithNodesAway(t *testing.T) {
	const clients, turns = 4, 20
	for _, nodes := range []int{3, 5} {
		s := newSite(t, nodes, clients, 0)
		for _, f := range faults {
			if nodes == 5 && f.name != "dead" && f.name != "hung" {
				continue
			}
			s.takeTurns(t, f, clients, turns)
		}
	}
}

// The same is so at a distance, where an answer takes much of what a limit near by allows.
func TestContendedAtADistance(t *testing.T) {
	const clients, turns = 8, 5
	s := newSite(t, 3, clients, 30*time.Millisecond)
	s.takeTurns(t, faults[0], clients, turns)
}

// takeTurns has clients contend with nodes in trouble, and once these are well again.
func (s *site) takeTurns(t *testing.T, f fault, clients, turns int) {
	t.Helper()
	strikes := len(s.nodes) / 2
	away := s.contendUnder(t, f, strikes, clients, *each, turns)
	up := s.contend(t, clients, s.name(0), *each, turns)
	t.Logf("%d nodes, %d %s: %v; all up: %v", len(s.nodes), strikes, f.name, away, up)
}

// unwilling are ways in which a server answers and grants nothing: what brings it there, and
// what brings it back.
var unwilling = []struct{ name, begin, end string }{
	{"replica", "replicaof 127.0.0.1 1", "replicaof no one"},
	{"without replicas", "config set min-replicas-to-write 1", "config set min-replicas-to-write 0"},
}

// Who waits at a node that answers, but refuses to write, goes on at another one. Nobody is
// held up when it is back, and there is one queue again.
func TestFrontRefuses(t *testing.T) {
	t.Parallel()
	s := newSite(t, 3, 3, 0)
	for _, w := range unwilling {
		name := s.name(0)
		front, key := admin(t, s.nodes[0].server), "dlock:{"+name+"}"
		do := func(command string) { ok(t, front.Do(t.Context(), words(command)...).Err()) }
		holder, err := s.clients[0].Mutex(name).Lock(t.Context())
		ok(t, err)
		got := make(chan *dlock.Lease)
		for _, c := range s.clients[1:] {
			go func() {
				l, err := c.Mutex(name).Lock(context.Background())
				if err != nil {
					t.Errorf("%s: lock: %v", w.name, err)
				}
				got <- l
			}()
		}
		eventually(t, "all nodes know the holder", func() bool {
			return !slices.ContainsFunc(s.nodes, func(n *place) bool { return !admin(t, n.server).HExists(t.Context(), key, "o").Val() })
		})
		eventually(t, "the others wait", func() bool { // on a busy machine another node may be their front
			waiting := int64(0)
			for _, n := range s.nodes {
				waiting += admin(t, n.server).ZCard(t.Context(), key+":q").Val()
			}
			return waiting >= 2
		})
		do(w.begin)
		ok(t, holder.Unlock(t.Context()))
		began := time.Now()
		for range 2 {
			select {
			case l := <-got:
				ok(t, l.Unlock(t.Context()))
			case <-time.After(20 * time.Second):
				t.Errorf("%s: who waits has not got the lock", w.name)
				do(w.end)
				ok(t, (<-got).Unlock(t.Context()))
			}
		}
		t.Logf("%s: both have had the lock after %v", w.name, time.Since(began))
		s.contend(t, 3, name, *each, 0)
		do(w.end)
		s.contend(t, 3, name, *each, 0)
	}
}

// What a node grants out of its queue lasts for some seconds, and for the whole lease once
// it is renewed. So a node that has a part of a hold keeps it, however late it has granted that.
func TestNoPartRunsOut(t *testing.T) {
	t.Parallel()
	const names, unconfirmed = 45, 5 * time.Second
	s := newSite(t, 3, 2, 0)
	var admins []*redis.Client
	for i, n := range s.nodes {
		n.slowBy(time.Duration(i)*2*time.Millisecond, 4*time.Millisecond)
		admins = append(admins, admin(t, n.server))
	}
	lock := func(client int, name string) *dlock.Lease {
		l, err := s.clients[client].Mutex(name, dlock.WithTTL(6*unconfirmed)).Lock(t.Context())
		if err != nil {
			t.Errorf("lock: %v", err)
		}
		return l
	}
	var all sync.WaitGroup
	for i := range names {
		name := s.name(i % len(s.nodes))
		key := "dlock:{" + name + "}"
		all.Go(func() {
			first, next := lock(0, name), make(chan *dlock.Lease)
			go func() { next <- lock(1, name) }()
			eventually(t, "somebody waits", func() bool {
				return slices.ContainsFunc(admins, func(a *redis.Client) bool { return a.ZCard(t.Context(), key+":q").Val() > 0 })
			})
			ok(t, first.Unlock(t.Context()))
			l := <-next
			time.Sleep(time.Second)
			var had []int // a node that was late is asked with the next renewal
			for n, a := range admins {
				if a.HExists(t.Context(), key, "o").Val() {
					had = append(had, n)
				}
			}
			time.Sleep(unconfirmed + time.Second) // less than until the hold is renewed
			for _, n := range had {
				if !admins[n].HExists(t.Context(), key, "o").Val() {
					t.Errorf("node %d has no part of %s any more", n+1, name)
				}
			}
			ok(t, l.Unlock(t.Context()))
		})
	}
	all.Wait()
}

func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(wait); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not so:", what)
		}
	}
}

func words(command string) (all []any) {
	for _, w := range strings.Fields(command) {
		all = append(all, w)
	}
	return all
}

// TestTableOfContention prints how fast a contended lock goes round. As many nodes are away as
// a majority survives.
func TestTableOfContention(t *testing.T) {
	if *table == 0 {
		return
	}
	s := newSite(t, *table, 8, *trip)
	for _, n := range []int{2, 4, 8} {
		t.Logf("%d nodes, %d clients, all up: %v", *table, n, s.contend(t, n, s.name(0), *each, 0))
		for _, f := range faults {
			away := *table / 2
			t.Logf("%d nodes, %d clients, %d %s: %v", *table, n, away, f.name, s.contendUnder(t, f, away, n, *each, 0))
		}
	}
}

// name returns a new name, for which clients queue at the node at place i if they
// can.
func (s *site) name(i int) string {
	for {
		s.names++
		if name := fmt.Sprint("contended-", s.names); frontOf(name, len(s.nodes)) == i {
			return name
		}
	}
}

// frontOf is the place of the one of n nodes at which clients queue for a name.
func frontOf(name string, n int) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	return int(h.Sum32() % uint32(n))
}

// contendUnder has a fault strike the first of the nodes, those where the clients
// queue.
func (s *site) contendUnder(t testing.TB, f fault, strikes, n int, d time.Duration, turns int) pace {
	t.Helper()
	var ends []func()
	for i := range strikes {
		ends = append(ends, f.begin(t, s.nodes[i]))
	}
	p := s.contend(t, n, s.name(0), d, turns)
	for _, end := range ends {
		end()
	}
	time.Sleep(100 * time.Millisecond)
	return p
}
