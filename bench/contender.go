package main

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/dlock-go/dlock"
	_ "github.com/dlock-go/dlock/backend/all" // the backends that URLs name
	"github.com/dlock-go/dlock/internal/workload"
)

// A role says why a contender is there.
type role string

const (
	ours  role = "dlock" // this library
	floor role = "floor" // the bare client, with nothing around it
	peer  role = "peer"  // what people would use instead
)

// A contender is a workload.Contender with what readers have to know of it.
type contender struct {
	workload.Contender
	Role   role
	Server string // whose contenders compare: redis, etcd, zookeeper, postgres or none
	Note   string // what it guarantees and what not
	Only   []string
	Best   bool // of the other libraries on its server; it takes part in the series
}

// fileMost keeps the locks of the file backend, a descriptor each, within what
// systems allow a process.
const fileMost = 10_000

// renewedMost is how many leases of 3 s this machine can renew in time on three servers, or
// on etcd, which is asked about each key.
const renewedMost = 10_000

// most is the size up to which c takes part in series.
func (c contender) most() int {
	switch c.Name {
	case "dlock file":
		return fileMost
	case onRedlock, onEtcd:
		return renewedMost
	}
	return math.MaxInt
}

// in reports whether c takes part in the workload of that id.
func (c contender) in(id string) bool {
	return len(c.Only) == 0 || slices.Contains(c.Only, id)
}

// contenders are all, in the order of tables.
func contenders(s *servers) []contender {
	return slices.Concat(dlocks(s), redisRivals(s), etcdRivals(s), zookeeperRivals(s), postgresRivals(s))
}

const (
	promises   = "every promise of the suite: lease with loss told in time, growing token, first come first served"
	noneServer = "none"
)

// dlocks are this library on each backend.
func dlocks(s *servers) []contender {
	of := func(backend, server, url string, m workload.Meter) contender {
		return contender{
			Contender: workload.DLock("dlock "+backend, m, func(ctx context.Context, o dlock.Options) (*dlock.Client, error) {
				return dlock.Open(ctx, url, &o)
			}),
			Role: ours, Server: server, Note: promises,
		}
	}
	return []contender{
		of("memory", noneServer, "memory://bench", nil),
		of("file", noneServer, "file://"+s.dir, nil),
		of("redis", "redis", "redis://"+s.redis[0].Addr(), s.redisMeter(1)),
		of("redlock, 3 nodes", "redis", s.redlockURL(), s.redisMeter(redisNodes)),
		of("etcd", "etcd", "etcd://"+s.etcd.Addr(), s.etcdMeter()),
		of("zookeeper", "zookeeper", "zk://"+s.zookeeper.Addr()+"/dlock?ensemble=false", s.zookeeperMeter()),
		of("postgres", "postgres", fmt.Sprintf(postgresURL, s.postgres.Addr()), s.postgresMeter()),
	}
}
