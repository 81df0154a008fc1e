package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/internal/server"
)

// servers are all that contenders need, as child processes. etcd, ZooKeeper and
// Postgres write to disk before they answer, as in production. Redis does not
// write at all.
type servers struct {
	dir       string // of lock files
	redis     []*server.Server
	etcd      *server.Server
	zookeeper *server.Server
	postgres  *server.Server
}

const (
	redisNodes  = 3
	postgresURL = "postgres://postgres@%s/postgres?sslmode=disable"
)

// startServers starts all. The caller closes them, also after an error.
func startServers() (s *servers, err error) {
	s = &servers{}
	if s.dir, err = os.MkdirTemp("", "dlock-compare-"); err != nil {
		return s, err
	}
	for range redisNodes {
		node, err := server.New(server.Redis{})
		if err != nil {
			return s, err
		}
		s.redis = append(s.redis, node)
		if err := takePart(node); err != nil {
			return s, err
		}
	}
	if s.etcd, err = server.New(server.Etcd{Args: []string{"--quota-backend-bytes=4294967296"}}); err != nil {
		return s, err
	}
	zk := server.ZooKeeper{Heap: "1g", Config: []string{"tickTime=1000", "maxSessionTimeout=120000", "forceSync=yes", "preAllocSize=65536"}}
	if s.zookeeper, err = server.New(zk); err != nil {
		return s, err
	}
	if s.postgres, err = server.New(server.Postgres{Settings: []string{
		"fsync=on",
		"max_connections=1300",
		"max_locks_per_transaction=256",
		"shared_buffers=128MB",
		"shared_preload_libraries=pg_stat_statements",
	}}); err != nil {
		return s, err
	}
	return s, s.countStatements()
}

// takePart tells a node of a quorum that it has forgotten nothing: it is new.
func takePart(node *server.Server) error {
	c := redis.NewClient(&redis.Options{Addr: node.Addr()})
	return errors.Join(c.HSet(context.Background(), "dlock:boot", "since", 1, "run", "-").Err(), c.Close())
}

// countStatements installs the extension that the meter reads.
func (s *servers) countStatements() error {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, fmt.Sprintf(postgresURL, s.postgres.Addr()))
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "CREATE EXTENSION pg_stat_statements")
	return errors.Join(err, conn.Close(ctx))
}

func (s *servers) close() error {
	var errs []error
	for _, one := range append(s.redis, s.etcd, s.zookeeper, s.postgres) {
		if one != nil {
			errs = append(errs, one.Close())
		}
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}

// redlockURL is that of a lock on a majority of the Redis servers.
func (s *servers) redlockURL() string {
	return "redlock://" + strings.Join(s.redisAddrs(redisNodes), ",")
}

// redisAddrs are the addresses of the first Redis servers.
func (s *servers) redisAddrs(n int) (addrs []string) {
	for _, node := range s.redis[:n] {
		addrs = append(addrs, node.Addr())
	}
	return addrs
}

// versions are what the servers say of themselves.
func (s *servers) versions() map[string]string {
	return map[string]string{
		"Redis":      s.redis[0].Version(),
		"etcd":       s.etcd.Version(),
		"ZooKeeper":  s.zookeeper.Version(),
		"PostgreSQL": s.postgres.Version(),
	}
}
