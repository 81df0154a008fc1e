package redis

import (
	"bufio"
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/canary"
	"github.com/dlock-go/dlock/internal/server"
)

// TestNoSecrets shows no password of a server that is of no use.
func TestNoSecrets(t *testing.T) {
	canary.CheckOpens(t, []string{"-ERR unknown command 'HELLO', with args beginning with: '3' 'auth' 'user' '" + canary.Secret + "'\r\n", "-WRONGPASS invalid username-password pair or user is disabled.\r\n", "*1\r\n$3\r\nfoo\r\n"},
		"redis://user:SECRET@HOST?dial_timeout=1s&read_timeout=1s",
		"redis://:SECRET@HOST",
		"rediss://user:SECRET@HOST",
		"redis+sentinel://user:SECRET@HOST/master?sentinel_username=u&sentinel_password=SECRET",
		"redis+cluster://user:SECRET@HOST",
		"redis://user:SECRET@HOST/x",
		"redis://user:SECRET@HOST?pool_size=SECRET",
		"redis://user:SECRET@HOST/1?db=2")
}

// TestNoSecretsLater has a server with a password be all right for some time.
func TestNoSecretsLater(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	s := server.Start(t, server.Redis{Args: []string{"--requirepass", canary.Secret}})
	log, said := canary.Log()
	_, err := dlock.Open(ctx, "redis://:"+canary.Secret+"x@"+s.Addr(), &dlock.Options{Logger: log})
	is(t, err, dlock.ErrAuth)
	canary.Check(t, "wrong password", err)
	c := must[*dlock.Client](t)(dlock.Open(ctx, "redis://:"+canary.Secret+"@"+s.Addr(), &dlock.Options{TTL: time.Second, Logger: log}))
	lease := must[*dlock.Lease](t)(c.Mutex("name").Lock(ctx))
	must[any](t)(nil, s.Kill())
	_, err = c.Mutex("other").TryLock(ctx)
	is(t, err, dlock.ErrUnavailable)
	canary.Check(t, "no server", err)
	<-lease.Context(ctx).Done()
	canary.Check(t, "lost", lease.Err())
	canary.Check(t, "unlock", lease.Unlock(ctx))
	canary.Check(t, "close", c.Close(ctx))
	canary.Check(t, "client", c) // now that it does nothing beside being printed
	canary.Check(t, "lease", lease)
	canary.Check(t, "log", said())
	b := New(redis.NewClient(&redis.Options{Addr: s.Addr(), Password: canary.Secret}), nil)
	canary.Check(t, "backend", b)
	canary.Check(t, "close", b.Close(ctx))
}

// TestNoSecretsOfNewConnections has new connections reach something that knows no command, and repeats the password
// that it is told. Neither what a waiter logs nor what Examine finds names it.
func TestNoSecretsOfNewConnections(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	s := server.Start(t, server.Redis{Args: []string{"--requirepass", canary.Secret}})
	var repeats atomic.Bool
	rdb := redis.NewClient(&redis.Options{
		Addr: s.Addr(), Password: canary.Secret, PoolSize: 1, DisableIdentity: true, MaxRetries: -1,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if repeats.Load() {
				return repeater(), nil
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		},
	})
	t.Cleanup(func() { _ = rdb.Close() })
	log, said := canary.Log()
	b := New(rdb, &Options{Logger: log})
	c := must[*dlock.Client](t)(dlock.New(b, &dlock.Options{Logger: log}))
	held := must[*dlock.Lease](t)(c.Mutex("x").Lock(ctx))
	repeats.Store(true)
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	other := must[*dlock.Client](t)(dlock.New(New(rdb, &Options{Logger: log}), nil))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = other.Mutex("x").Lock(waiting)
	}()
	eventually(t, "it is logged", func() bool { return said() != "" })
	must[any](t)(nil, b.Examine(ctx, func(f backend.Finding) { canary.Check(t, f.Subject, f.Text) }))
	canary.Check(t, "log", said())
	stop()
	<-ended
	must[any](t)(nil, held.Unlock(ctx))
}

// repeater returns a connection to something that repeats a password whatever it is asked.
func repeater() net.Conn {
	near, far := net.Pipe()
	go func() {
		defer far.Close()
		for in := bufio.NewReader(far); ; {
			if readRequest(in) == nil {
				return
			}
			if _, err := far.Write([]byte("-ERR unknown command 'AUTH', with args beginning with: '" + canary.Secret + "'\r\n")); err != nil {
				return
			}
		}
	}()
	return near
}
