package redis

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
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
