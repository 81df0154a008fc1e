package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	shards = 3
	slots  = 16384
)

// A Cluster is a Redis cluster of three masters, each with a third of the slots
// and one replica. Who is which changes with every failover: the fields say how
// it began.
type Cluster struct {
	Masters  []*Server
	Replicas []*Server // the i-th copies the i-th master
}

// StartCluster runs a cluster for one test. A node that has been silent for
// timeout is taken for dead.
func StartCluster(t testing.TB, kind Redis, timeout time.Duration) *Cluster {
	t.Helper()
	c, err := NewCluster(kind, timeout)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, c)
	return c
}

// NewCluster returns when every node knows who has which slots, and every
// replica has its master's data.
func NewCluster(kind Redis, timeout time.Duration) (*Cluster, error) {
	c := new(Cluster)
	err := c.start(kind, timeout)
	if err == nil {
		err = c.join()
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// start runs the nodes, which are strangers yet.
func (c *Cluster) start(kind Redis, timeout time.Duration) error {
	kinds := make([]Kind, 2*shards)
	for i := range kinds {
		kinds[i] = clusterNode{kind.node(timeout)}
	}
	g, err := newGroup(kinds...)
	if err != nil {
		return err
	}
	c.Masters, c.Replicas = g[:shards], g[shards:]
	return nil
}

// A clusterNode is a server that needs a second port.
type clusterNode struct{ Redis }

func (r Redis) node(timeout time.Duration) Redis {
	r.Args = append(r.Args[:len(r.Args):len(r.Args)],
		"--cluster-enabled", "yes",
		"--cluster-node-timeout", strconv.FormatInt(timeout.Milliseconds(), 10),
		"--cluster-replica-validity-factor", "0", // the only replica may always take over
		"--repl-diskless-sync-delay", "0",
	)
	return r
}

// Addrs are where the nodes listen, the masters first.
func (c *Cluster) Addrs() []string {
	var addrs []string
	for _, s := range c.nodes() {
		addrs = append(addrs, s.Addr())
	}
	return addrs
}

func (c *Cluster) nodes() group { return append(append(group{}, c.Masters...), c.Replicas...) }

// Close ends all nodes.
func (c *Cluster) Close() error { return c.nodes().Close() }

// join makes one cluster of the nodes.
func (c *Cluster) join() error {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	for i, s := range c.Masters {
		first, next := i*slots/shards, (i+1)*slots/shards
		var all strings.Builder
		for slot := first; slot < next; slot++ {
			fmt.Fprintf(&all, " %d", slot)
		}
		if err := tell(ctx, s, "CLUSTER ADDSLOTS%s", &all); err != nil {
			return err
		}
	}
	for i, s := range c.nodes() {
		// Epochs that differ spare the nodes a quarrel about them.
		if err := tell(ctx, s, "CLUSTER SET-CONFIG-EPOCH %d", i+1); err != nil {
			return err
		}
	}
	if err := c.meet(); err != nil {
		return err
	}
	for i, s := range c.Replicas {
		if err := await(func(ctx context.Context) error { return follow(ctx, s, c.Masters[i]) }); err != nil {
			return err
		}
	}
	return c.Await()
}

// meet makes the nodes known to each other through the first. A node of a busy
// machine that was not answered in time forgets that it was to meet somebody.
func (c *Cluster) meet() error {
	var asked time.Time
	return await(func(ctx context.Context) error {
		err := c.acquainted(ctx)
		if err == nil || time.Since(asked) < probeLimit {
			return err
		}
		asked = time.Now()
		host, port, _ := net.SplitHostPort(c.Masters[0].Addr())
		for _, s := range c.nodes()[1:] {
			err = errors.Join(err, tell(ctx, s, "CLUSTER MEET %s %s", host, port))
		}
		return err
	})
}

// acquainted fails until every node has met all.
func (c *Cluster) acquainted(ctx context.Context) error {
	for _, s := range c.nodes() {
		known, err := redisCommand(ctx, s.Addr(), "CLUSTER NODES")
		if err != nil {
			return err
		}
		if n := strings.Count(known, " connected"); n != 2*shards || strings.Contains(known, "handshake") {
			return fmt.Errorf("%s has not met all: %s", s.Addr(), known)
		}
	}
	return nil
}

func tell(ctx context.Context, s *Server, format string, args ...any) error {
	_, err := patientCommand(ctx, s.Addr(), fmt.Sprintf(format, args...))
	return err
}

// follow makes s a replica of master, which it has to know first.
func follow(ctx context.Context, s, master *Server) error {
	id, err := redisCommand(ctx, master.Addr(), "CLUSTER MYID")
	if err != nil {
		return err
	}
	_, id, _ = strings.Cut(id, "\r\n") // after its length
	return tell(ctx, s, "CLUSTER REPLICATE %s", strings.TrimSpace(id))
}

// Await returns when the whole cluster is in order, as at its beginning or
// after the restart of nodes that were killed.
func (c *Cluster) Await() error {
	return await(func(ctx context.Context) error {
		for _, s := range c.nodes() {
			if err := healthy(ctx, s); err != nil {
				return err
			}
		}
		return nil
	})
}

// healthy fails until a node sees a cluster in order, itself included. A master that
// takes a replica for a master gives it no vote.
func healthy(ctx context.Context, s *Server) error {
	info, err := redisCommand(ctx, s.Addr(), "CLUSTER INFO")
	if err != nil {
		return err
	}
	for _, want := range []string{
		"cluster_state:ok",
		"cluster_slots_ok:" + strconv.Itoa(slots),
		"cluster_known_nodes:" + strconv.Itoa(2*shards),
		"cluster_size:" + strconv.Itoa(shards),
	} {
		if !strings.Contains(info, want+"\r\n") {
			return fmt.Errorf("%s does not say %s", s.Addr(), want)
		}
	}
	known, err := redisCommand(ctx, s.Addr(), "CLUSTER NODES")
	if err != nil {
		return err
	}
	if n := strings.Count(known, "slave"); n != shards {
		return fmt.Errorf("%s knows %d replicas", s.Addr(), n)
	}
	return copying(ctx, s)
}

// copying fails until a master has its replica, or a replica its master's data.
func copying(ctx context.Context, s *Server) error {
	info, err := redisCommand(ctx, s.Addr(), "INFO replication")
	if err != nil {
		return err
	}
	if !strings.Contains(info, "state=online") && !strings.Contains(info, "master_link_status:up") {
		return fmt.Errorf("%s copies nothing, or is not copied", s.Addr())
	}
	return nil
}
