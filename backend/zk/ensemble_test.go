package zk_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

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
	servers := leaderLast(t, ensemble(t))
	one, two, leader := servers[0], servers[1], servers[2]
	proxy := proxyTo(t, one.Addr())
	o := &zk.Options{SessionTimeout: 20 * time.Second, Ensemble: true}
	holder := connect(t, o, proxy.Addr())
	waiter := connect(t, o, two.Addr(), leader.Addr(), one.Addr())
	op := operator(t, two.Addr())

	t.Run("Move", func(t *testing.T) { move(t, proxy, two) })

	lease := lock(t, holder.Mutex("m"))
	next := start(t, waiter.Mutex("m"))
	queued(t, op, "m", 2)
	must(t, leader.Kill())
	unlock(t, lock(t, holder.Mutex("other"))) // there is a new leader
	if lease.Err() != nil || !next.waiting() {
		t.Fatalf("after the leader's death: lease %v, it waits: %t", lease.Err(), next.waiting())
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

// move takes a client to another member, inside its session and with a request
// under way.
func move(t *testing.T, proxy *faultnet.Proxy, to *server.Server) {
	c := connect(t, &zk.Options{SessionTimeout: 20 * time.Second, Ensemble: true}, proxy.Addr())
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
