package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/internal/workload"
)

const (
	nodeFloor = "floor create + delete"
	zkLock    = "zk.Lock"
)

func zookeeperRivals(s *servers) []contender {
	addr, m := s.zookeeper.Addr(), s.zookeeperMeter()
	return []contender{
		{
			Contender: workload.Contender{Name: nodeFloor, Meter: m, Open: openNodes(addr)},
			Role:      floor, Server: "zookeeper", Only: []string{"W1", "W2", "W5"},
			Note: "an ephemeral node that comes and goes; no waiting",
		},
		{
			Contender: workload.Contender{Name: zkLock, Meter: m, Open: openZkLock(addr)},
			Role:      peer, Server: "zookeeper", Best: true,
			Note: "first come first served; a wait cannot be cancelled, loss is not told, a lost reply can block everybody",
		},
	}
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

func zkConn(addr string, ttl time.Duration) (*zk.Conn, error) {
	conn, _, err := zk.Connect([]string{addr}, ttl, zk.WithLogInfo(false), zk.WithLogger(quiet{}))
	return conn, err
}

var world = zk.WorldACL(zk.PermAll)

func openNodes(addr string) func(context.Context, workload.Options) (workload.Client, error) {
	return func(_ context.Context, o workload.Options) (workload.Client, error) {
		conn, err := zkConn(addr, o.TTL)
		if err != nil {
			return nil, err
		}
		return client{func(name string) workload.Lock {
			dir := "/floor-" + strings.ReplaceAll(name, "/", "-")
			if _, err := conn.Create(dir, nil, zk.FlagPersistent, world); err != nil && !errors.Is(err, zk.ErrNodeExists) {
				return broken(err)
			}
			var made string
			return handle{
				func(context.Context) (err error) {
					made, err = conn.Create(dir+"/n-", nil, zk.FlagEphemeralSequential, world)
					return err
				},
				func(context.Context) error { return conn.Delete(made, -1) },
			}
		}, func() error { conn.Close(); return nil }}, nil
	}
}

func openZkLock(addr string) func(context.Context, workload.Options) (workload.Client, error) {
	return func(_ context.Context, o workload.Options) (workload.Client, error) {
		conn, err := zkConn(addr, o.TTL)
		if err != nil {
			return nil, err
		}
		return client{func(name string) workload.Lock {
			l := zk.NewLock(conn, "/zklock-"+strings.ReplaceAll(name, "/", "-"), world)
			return handle{
				func(context.Context) error { return l.Lock() },
				func(context.Context) error { return l.Unlock() },
			}
		}, func() error { conn.Close(); return nil }}, nil
	}
}
