package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
)

// A Replicated is a primary Redis and its replicas.
type Replicated struct {
	Primary  *Server
	Replicas []*Server
}

// StartReplicated runs a primary and n replicas for one test.
func StartReplicated(t testing.TB, n int, kind Redis) *Replicated {
	t.Helper()
	r, err := NewReplicated(n, kind)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, r)
	return r
}

// NewReplicated returns when every replica has the primary's data.
func NewReplicated(n int, kind Redis) (*Replicated, error) {
	kind.Args = append(kind.Args[:len(kind.Args):len(kind.Args)], "--repl-diskless-sync-delay", "0")
	primary, err := New(kind)
	if err != nil {
		return nil, err
	}
	r := &Replicated{Primary: primary}
	r.Replicas, err = newGroup(Copies(n, kind.replicaOf(primary.Addr()))...)
	if err == nil {
		err = await(func(ctx context.Context) error { return copied(ctx, primary.Addr(), n) })
	}
	if err == nil && n > 0 {
		err = acknowledged(primary.Addr())
	}
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// replicaOf is a kind that copies the Redis at addr.
func (r Redis) replicaOf(addr string) Redis {
	host, port, _ := net.SplitHostPort(addr)
	r.Args = append(r.Args[:len(r.Args):len(r.Args)], "--replicaof", host, port)
	return r
}

// acknowledged returns when the replicas of the Redis at addr have told it that
// they hear it, which a new one does a second late.
func acknowledged(addr string) error {
	return await(func(ctx context.Context) error {
		if _, err := redisCommand(ctx, addr, "PUBLISH dlock-test heard"); err != nil {
			return err
		}
		info, err := redisCommand(ctx, addr, "INFO replication")
		if err != nil {
			return err
		}
		if strings.Contains(info, ",offset=0,") {
			return errors.New("a replica has acknowledged nothing")
		}
		return nil
	})
}

// Close ends all of them.
func (r *Replicated) Close() error { return r.servers().Close() }

func (r *Replicated) servers() group { return append(group{r.Primary}, r.Replicas...) }

// copied fails until n replicas of the Redis at addr are up to date.
func copied(ctx context.Context, addr string, n int) error {
	info, err := redisCommand(ctx, addr, "INFO replication")
	if err != nil {
		return err
	}
	if online := strings.Count(info, "state=online"); online != n {
		return fmt.Errorf("%d of %d replicas are online", online, n)
	}
	return nil
}
