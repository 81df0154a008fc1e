package zk_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
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

// ensemble starts three servers that are one ensemble.
func ensemble(t *testing.T) []*server.Server {
	const members = 3
	var lines []string
	for i := range members {
		lines = append(lines, fmt.Sprintf("server.%d=%s:%s", i+1, server.ReserveAddr(t), portOf(server.ReserveAddr(t))))
	}
	lines = append(lines, "initLimit=25", "syncLimit=10", "maxSessionTimeout=120000")
	servers := make([]*server.Server, members)
	var all sync.WaitGroup
	for i := range members {
		dir := t.TempDir() // a member needs to find there who it is
		must(t, os.WriteFile(filepath.Join(dir, "myid"), fmt.Append(nil, i+1), 0o600))
		all.Go(func() {
			var err error
			servers[i], err = server.New(server.ZooKeeper{SuperPassword: superPassword, Config: append([]string{"dataDir=" + dir}, lines...)})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	t.Cleanup(func() {
		for _, s := range servers {
			if s != nil {
				must(t, s.Close())
			}
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	return servers
}

func portOf(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return port
}

// leaderLast puts the leader at the end.
func leaderLast(t *testing.T, servers []*server.Server) []*server.Server {
	for i, s := range servers {
		if strings.Contains(command(t, s.Addr(), "srvr"), "Mode: leader") {
			servers[i], servers[len(servers)-1] = servers[len(servers)-1], s
			return servers
		}
	}
	t.Fatal("there is no leader")
	return nil
}

func TestEnsemble(t *testing.T) {
	t.Parallel()
	servers := leaderLast(t, ensemble(t))
	one, two, leader := servers[0], servers[1], servers[2]
	proxy := proxyTo(t, one.Addr())
	o := &zk.Options{SessionTimeout: 20 * time.Second}
	holder := member(t, o, proxy.Addr())
	waiter := member(t, o, two.Addr(), leader.Addr(), one.Addr())
	op := operator(t, two.Addr())

	t.Run("Move", func(t *testing.T) { move(t, proxy, two) })
	t.Run("OneMemberGone", func(t *testing.T) { oneMemberGone(t, servers) })

	lease := lock(t, holder.Mutex("m"))
	next := start(t, waiter.Mutex("m"))
	queued(t, op, "m", 2)
	must(t, leader.Kill())
	recovers(t, holder.Mutex("other")) // there is a new leader
	eventually(t, "the dead member is named", func() bool {
		return waiter.Ping(testContext(t)) == nil && strings.Contains(complaints(t, waiter)["members"], leader.Addr()+" does not tell")
	})
	must(t, lease.Err())
	if !next.waiting() {
		t.Fatalf("the wait has ended with the leader: %v, %v", next.lease, next.err)
	}
	unlock(t, lease)
	second := next.granted(t)
	if second.Token() <= lease.Token() {
		t.Errorf("token %d came after %d", second.Token(), lease.Token())
	}
	held(t, holder.Mutex("m"))
	unlock(t, second)
	try(t, holder.Mutex("m"))
}

// answerLimits is how long a Lock may take beside a member that does not answer: two
// limits of a request, and what a loaded machine needs. The driver alone would notice
// after two thirds of the session.
const answerLimits = 2*time.Second + 6*time.Second

// oneMemberGone has the first of three members be stopped, go silent on a connection,
// or be cut off, for a client that is there and for one that is to be opened.
func oneMemberGone(t *testing.T, servers []*server.Server) {
	bounded := func(t *testing.T, what string, f func()) {
		t.Helper()
		start := time.Now()
		f()
		if took := time.Since(start); took > answerLimits {
			t.Errorf("%s took %v", what, took)
		}
	}
	for name, fault := range map[string]struct {
		begin, end func(t *testing.T, p *faultnet.Proxy)
	}{
		"stopped": {
			func(t *testing.T, _ *faultnet.Proxy) { must(t, servers[0].Pause()) },
			func(t *testing.T, _ *faultnet.Proxy) { must(t, servers[0].Resume()) },
		},
		"silent": {
			func(t *testing.T, p *faultnet.Proxy) { p.Blackhole(faultnet.BothWays) },
			func(t *testing.T, p *faultnet.Proxy) { p.Restore(faultnet.BothWays) },
		},
		"cut off": {
			func(t *testing.T, p *faultnet.Proxy) { p.Refuse(); p.Reset() },
			func(t *testing.T, p *faultnet.Proxy) { must(t, p.Admit()) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, others := proxyTo(t, servers[0].Addr()), proxyTo(t, servers[1].Addr())
			third := proxyTo(t, servers[2].Addr())
			others.Refuse()
			third.Refuse()
			o := &zk.Options{SessionTimeout: 20 * time.Second}
			c := member(t, o, p.Addr(), others.Addr(), third.Addr()) // at the first
			must(t, others.Admit())
			must(t, third.Admit())
			kept := lock(t, c.Mutex("kept"))
			unlock(t, lock(t, c.Mutex("m")))

			fault.begin(t, p)
			t.Cleanup(func() { fault.end(t, p) })
			bounded(t, "Lock", func() { unlock(t, lock(t, c.Mutex("m"))) })
			bounded(t, "TryLock", func() { try(t, c.Mutex("m")) })
			for range 2 { // in whatever order it comes to them
				bounded(t, "Open", func() {
					try(t, member(t, &zk.Options{Root: rootOf(t), SessionTimeout: 20 * time.Second}, p.Addr(), others.Addr(), third.Addr()).Mutex("m"))
				})
			}
			must(t, kept.Err())
			bounded(t, "Unlock", func() { unlock(t, kept) })
		})
	}
}

// TestNobodyAnswers bounds what can be asked of a server that accepts connections and
// says nothing.
func TestNobodyAnswers(t *testing.T) {
	t.Parallel()
	c, p := proxied(t, &zk.Options{SessionTimeout: 20 * time.Second}, shared.Addr())
	unlock(t, lock(t, c.Mutex("m")))
	p.Blackhole(faultnet.BothWays)
	var all sync.WaitGroup
	for name, ask := range map[string]func() error{
		"Connect": func() error { _, err := zk.Connect(context.Background(), []string{p.Addr()}, nil); return err },
		"Lock":    func() error { _, err := c.Mutex("m").Lock(context.Background()); return err },
		"TryLock": func() error { _, err := c.Mutex("n").TryLock(context.Background()); return err },
	} {
		all.Go(func() {
			start := time.Now()
			if err := ask(); !errors.Is(err, dlock.ErrUnavailable) {
				t.Errorf("%s: %v", name, err)
			}
			if took := time.Since(start); took > backend.FirstAnswer+5*time.Second {
				t.Errorf("%s took %v", name, took)
			}
		})
	}
	all.Wait()
	p.Restore(faultnet.BothWays)
}

// move takes a client to another member, inside its session and with a request
// under way.
func move(t *testing.T, proxy *faultnet.Proxy, to *server.Server) {
	c := member(t, &zk.Options{SessionTimeout: 20 * time.Second}, proxy.Addr())
	lease := lock(t, c.Mutex("held"))
	drop := proxy.DropReplyAfter(isRequest(opMulti))
	proxy.SetTarget(to.Addr())
	moved := lock(t, c.Mutex("m"))
	if !drop.Answered() {
		t.Error("the request was not carried out")
	}
	queued(t, operator(t, to.Addr()), "m", 1)
	must(t, lease.Err())
	unlock(t, moved)
	unlock(t, lease)
}

// TestMemberIsNotAskedAtOnce renews a lock that was taken as soon as the client was open, so
// that the first renewals may extend nothing: they are not sent one right after another.
func TestMemberIsNotAskedAtOnce(t *testing.T) {
	const session = 3 * time.Second
	b, err := zk.Connect(testContext(t), []string{shared.Addr()}, &zk.Options{Root: rootOf(t), SessionTimeout: session})
	must(t, err)
	renewed := make(chan time.Time, 1000)
	c, err := dlock.New(b, &dlock.Options{TTL: session, Hooks: dlock.Hooks{
		Renewed: func(dlock.RenewedEvent) { renewed <- time.Now() },
	}})
	must(t, err)
	defer c.Close(context.Background())
	lease, err := c.Mutex("m").Lock(t.Context())
	must(t, err)
	first := receive(t, "a renewal", renewed)
	for range 3 {
		last := receive(t, "a further renewal", renewed)
		if took := last.Sub(first); took < session/10 {
			t.Fatalf("renewed again %v later", took)
		}
		first = last
	}
	must(t, lease.Unlock(t.Context()))
}
