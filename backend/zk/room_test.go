package zk_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/zk"
	"github.com/dlock-go/dlock/internal/faultnet"
	"github.com/dlock-go/dlock/internal/server"
)

// longName is a name whose nodes have paths of more than 3,000 bytes.
func longName(i int) string {
	name := fmt.Sprintf("%04d", i)
	return name + strings.Repeat("/", backend.MaxName-len(name))
}

// maxPerSession is how many long names a session has at most.
const maxPerSession = (512 << 10) / (3 * (backend.MaxName - 4))

func lockMany(t testing.TB, c *dlock.Client, n int) []*dlock.Lease {
	t.Helper()
	leases, errs := make([]*dlock.Lease, n), make([]error, n)
	var all sync.WaitGroup
	slots := make(chan struct{}, 16)
	for i := range n {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			leases[i], errs[i] = c.Mutex(longName(i)).Lock(testContext(t))
		})
	}
	all.Wait()
	for _, err := range errs {
		must(t, err)
	}
	return leases
}

// endingsOf returns, for each session that has nodes, how many it has and what they take up
// in the transaction that ends it.
func endingsOf(t testing.TB, addr string) (nodes, bytes []int) {
	t.Helper()
	_, list, _ := strings.Cut(command(t, addr, "dump"), "Sessions with Ephemerals")
	list, _, _ = strings.Cut(list, "Connections dump")
	for _, line := range strings.Split(list, "\n") {
		path, isPath := strings.CutPrefix(line, "\t")
		switch last := len(nodes) - 1; {
		case isPath:
			nodes[last]++
			bytes[last] += len(path) + 4
		case strings.HasPrefix(line, "0x"):
			nodes, bytes = append(nodes, 0), append(bytes, 0)
		}
	}
	return nodes, bytes
}

func sum(all []int) (total int) {
	for _, n := range all {
		total += n
	}
	return total
}

// endsAreSmall checks the transactions that are to end the sessions.
func endsAreSmall(t testing.TB, bytes []int) {
	t.Helper()
	for _, n := range bytes {
		if n > 512<<10 {
			t.Errorf("a session has nodes of %d bytes", n)
		}
	}
}

// TestServerStartsAfterManyLocks ends a client with more nodes than a server reads back from
// one transaction, and restarts the server with its data.
func TestServerStartsAfterManyLocks(t *testing.T) {
	for name, end := range map[string]func(*dlock.Client, *faultnet.Proxy){
		"cut off": func(_ *dlock.Client, p *faultnet.Proxy) { p.Blackhole(faultnet.BothWays) },
		"closed with a ctx that is done": func(c *dlock.Client, _ *faultnet.Proxy) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			_ = c.Close(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server.Start(t, kind)
			c, p := proxied(t, nil, s.Addr())
			lockMany(t, c, 5*maxPerSession)
			_, bytes := endingsOf(t, s.Addr())
			if sum(bytes) < 2<<20 {
				t.Fatalf("the nodes have no more than %v bytes", bytes)
			}
			endsAreSmall(t, bytes)
			end(c, p)
			defer p.Restore(faultnet.BothWays) // for the client to close
			eventually(t, "its sessions are over", func() bool { nodes, _ := endingsOf(t, s.Addr()); return len(nodes) == 0 })
			must(t, s.Restart(true))
			recovers(t, connect(t, nil, s.Addr()).Mutex(longName(0)))
		})
	}
}

// TestSessionsComeAndGo has two clients, one of which waits for what the other holds: they
// have no more sessions than they need.
func TestSessionsComeAndGo(t *testing.T) {
	t.Parallel()
	s := server.Start(t, kind)
	o := &zk.Options{SessionTimeout: time.Minute}
	holder, waiter := connect(t, o, s.Addr()), connect(t, o, s.Addr())
	const n = 2*maxPerSession + 10
	leases := lockMany(t, holder, n)
	var waits []*call
	for i := range n {
		waits = append(waits, start(t, waiter.Mutex(longName(i))))
	}
	eventually(t, "all wait", func() bool { nodes, _ := endingsOf(t, s.Addr()); return sum(nodes) == 2*n })
	nodes, bytes := endingsOf(t, s.Addr())
	endsAreSmall(t, bytes)
	if len(nodes) != 2*3 {
		t.Errorf("the sessions have %v nodes", nodes)
	}
	connections := func() int { return strings.Count(command(t, s.Addr(), "cons"), "sid=0x") }
	for _, w := range waits {
		w.cancel()
		receive(t, "it has left", w.done)
	}
	eventually(t, "who waits no more has one session", func() bool { return connections() == 3+1 })
	for _, l := range leases[1:] {
		unlock(t, l)
	}
	eventually(t, "a session that holds nothing is over", func() bool { return connections() <= 2+1 })
	must(t, leases[0].Err())
	unlock(t, leases[0])
	eventually(t, "the newest is left", func() bool { return connections() == 1+1 })
	unlock(t, lock(t, holder.Mutex("m")))
}

// TestNoFurtherConnection has a server that allows no second session. The client goes on
// with the first, where there is room again.
func TestNoFurtherConnection(t *testing.T) {
	t.Parallel()
	s := server.Start(t, server.ZooKeeper{Config: []string{"maxClientCnxns=1"}})
	c := connect(t, &zk.Options{SessionTimeout: 20 * time.Second}, s.Addr())
	var leases []*dlock.Lease
	for {
		lease, err := c.Mutex(longName(len(leases))).Lock(testContext(t))
		if err != nil {
			wantError(t, err, dlock.ErrUnavailable)
			break
		}
		if leases = append(leases, lease); len(leases) > maxPerSession {
			t.Fatal("there is no bound")
		}
	}
	for _, l := range leases {
		must(t, l.Err())
		unlock(t, l)
		unlock(t, lock(t, c.Mutex("m")))
	}
}
