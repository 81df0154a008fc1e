package server

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// silence is how long a node of a test is silent before it is taken for dead.
const silence = time.Second

// patience takes its place, in milliseconds, where a node that was replaced is to come back
// and follow. A busy machine may keep its successor silent for longer than silence, and they
// would change places again.
const patience = "120000"

func tellAll(t *testing.T, servers []*Server, command string) {
	t.Helper()
	for _, s := range servers {
		must(t, tell(t.Context(), s, "%s", command))
	}
}

// copiedTo waits until a replica has the record.
func copiedTo(t *testing.T, s *Server) {
	t.Helper()
	eventually(t, "the replica has the record", func() bool {
		reply, err := redisCommand(t.Context(), s.Addr(), "GET record")
		return err == nil && strings.Contains(reply, record)
	})
}

// primary reports whether s takes writes as the head of its replicas.
func primary(t *testing.T, s *Server) bool {
	info, _ := redisCommand(t.Context(), s.Addr(), "INFO replication")
	return strings.Contains(info, "role:master")
}

// follows reports whether s says that it is a replica.
func follows(t *testing.T, s *Server) bool {
	info, _ := redisCommand(t.Context(), s.Addr(), "INFO replication")
	return strings.Contains(info, "role:slave")
}

func TestReplicasCopyTheirPrimary(t *testing.T) {
	t.Parallel()
	r := StartReplicated(t, 2, Redis{})
	redisWrite(t, r.Primary.Addr())
	for _, s := range r.Replicas {
		copiedTo(t, s)
		if primary(t, s) {
			t.Error("a replica says that it is a primary")
		}
	}
}

func TestMastersAreApart(t *testing.T) {
	t.Parallel()
	masters := StartAll(t, Copies(3, Redis{})...)
	redisWrite(t, masters[0].Addr())
	for _, s := range masters[1:] {
		if reply := redisRead(t, s.Addr()); strings.Contains(reply, record) {
			t.Errorf("another master said %q", reply)
		}
	}
}

func TestSentinelsReplaceTheirPrimary(t *testing.T) {
	t.Parallel()
	w := StartWatched(t, 1, Redis{}, silence)
	redisWrite(t, w.Primary.Addr())
	copiedTo(t, w.Replicas[0])
	must(t, w.Primary.Kill())
	eventually(t, "the replica is promoted", func() bool { return primary(t, w.Replicas[0]) })
	for _, s := range w.Sentinels {
		eventually(t, "the sentinels say so", func() bool {
			said, err := redisCommand(t.Context(), s.Addr(), "SENTINEL GET-MASTER-ADDR-BY-NAME "+PrimaryName)
			_, port, _ := strings.Cut(w.Replicas[0].Addr(), ":")
			return err == nil && strings.Contains(said, "\r\n"+port+"\r\n")
		})
	}
	tellAll(t, w.Sentinels, "SENTINEL SET "+PrimaryName+" down-after-milliseconds "+patience)
	must(t, w.Primary.Restart(true))
	eventually(t, "the old primary follows", func() bool { return follows(t, w.Primary) })
}

func TestClusterReplacesAMaster(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Redis{AppendOnly: true}, silence)
	owner, replica := ownerOf(t, c)
	redisWrite(t, owner.Addr())
	must(t, owner.Kill())
	eventually(t, "the replica is promoted", func() bool {
		return primary(t, replica) && strings.Contains(redisRead(t, replica.Addr()), record)
	})
	tellAll(t, slices.DeleteFunc(c.nodes(), func(s *Server) bool { return s == owner }), "CONFIG SET cluster-node-timeout "+patience)
	must(t, owner.Restart(true))
	must(t, c.Await())
	eventually(t, "the old master follows", func() bool { return follows(t, owner) })
}

// ownerOf returns the master that has the record's slot, and its replica. The
// other masters say where it is.
func ownerOf(t *testing.T, c *Cluster) (owner, replica *Server) {
	t.Helper()
	for i, s := range c.Masters {
		if reply := redisRead(t, s.Addr()); !strings.HasPrefix(reply, "-MOVED") {
			owner, replica = s, c.Replicas[i]
		}
	}
	for _, s := range c.Masters {
		if reply := redisRead(t, s.Addr()); s != owner && !strings.Contains(reply, owner.Addr()) {
			t.Errorf("a master that has not the slot said %q", reply)
		}
	}
	return owner, replica
}

// A node that is slow to answer is not given up while a cluster is made of it.
func TestSlowNodeIsToldAllTheSame(t *testing.T) {
	t.Parallel()
	s := Start(t, Redis{})
	must(t, s.Pause())
	resumed := make(chan error, 1)
	time.AfterFunc(probeLimit+probeLimit/4, func() { resumed <- s.Resume() })
	must(t, tell(t.Context(), s, "SET record %s", record))
	must(t, <-resumed)
}

func TestClusterOutlivesARestart(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Redis{AppendOnly: true}, 15*time.Second)
	owner, _ := ownerOf(t, c)
	redisWrite(t, owner.Addr())
	must(t, group(c.Masters).each(func(i int) error { return c.Masters[i].Kill() }))
	must(t, group(c.Masters).each(func(i int) error { return c.Masters[i].Restart(true) }))
	must(t, c.Await())
	if reply := redisRead(t, owner.Addr()); !strings.Contains(reply, record) {
		t.Errorf("the record is gone: %q", reply)
	}
}
