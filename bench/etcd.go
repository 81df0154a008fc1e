package main

import (
	"context"
	"errors"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/dlock-go/dlock/internal/workload"
)

const (
	etcdFloor = "floor Txn + Delete"
	etcdMutex = "etcd concurrency.Mutex"
)

func etcdRivals(s *servers) []contender {
	addr, m := s.etcd.Addr(), s.etcdMeter()
	return []contender{
		{
			Contender: workload.Contender{Name: etcdFloor, Meter: m, Open: openTxn(addr)},
			Role:      floor, Server: "etcd", Only: []string{"W1", "W2", "W5"},
			Note: "a key that comes and goes under one lease; no waiting",
		},
		{
			Contender: workload.Contender{Name: etcdMutex, Meter: m, Open: openMutex(addr)},
			Role:      peer, Server: "etcd", Best: true,
			Note: "first come first served, renewal; needs a session for each waiter, since two Mutexes of one session do not exclude each other",
		},
	}
}

func etcdClient(addr string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{addr}, Logger: zap.NewNop()})
}

func seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

func openTxn(addr string) func(context.Context, workload.Options) (workload.Client, error) {
	return func(_ context.Context, o workload.Options) (workload.Client, error) {
		c, err := etcdClient(addr)
		if err != nil {
			return nil, err
		}
		session, err := concurrency.NewSession(c, concurrency.WithTTL(seconds(o.TTL)))
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		return client{func(name string) workload.Lock {
			free := clientv3.Compare(clientv3.CreateRevision(name), "=", 0)
			put := clientv3.OpPut(name, "", clientv3.WithLease(session.Lease()))
			return handle{
				func(ctx context.Context) error { _, err := c.Txn(ctx).If(free).Then(put).Commit(); return err },
				func(ctx context.Context) error { _, err := c.Delete(ctx, name); return err },
			}
		}, func() error { return errors.Join(session.Close(), c.Close()) }}, nil
	}
}

// mutexes is a client with one session, and more of them where several handles
// want the same name.
type mutexes struct {
	c    *clientv3.Client
	ttl  int
	mu   sync.Mutex
	seen map[string]int // handles of a name
	all  []*concurrency.Session
}

func openMutex(addr string) func(context.Context, workload.Options) (workload.Client, error) {
	return func(_ context.Context, o workload.Options) (workload.Client, error) {
		c, err := etcdClient(addr)
		if err != nil {
			return nil, err
		}
		m := &mutexes{c: c, ttl: seconds(o.TTL), seen: make(map[string]int)}
		return client{m.lock, m.close}, nil
	}
}

func (m *mutexes) lock(name string) workload.Lock {
	s, err := m.session(name)
	if err != nil {
		return broken(err)
	}
	mutex := concurrency.NewMutex(s, name)
	return handle{mutex.Lock, mutex.Unlock}
}

func (m *mutexes) session(name string) (*concurrency.Session, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen[name]++
	if n := m.seen[name]; n <= len(m.all) {
		return m.all[n-1], nil
	}
	s, err := concurrency.NewSession(m.c, concurrency.WithTTL(m.ttl))
	if err == nil {
		m.all = append(m.all, s)
	}
	return s, err
}

func (m *mutexes) close() error {
	var errs []error
	for _, s := range m.all {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, m.c.Close())...)
}
