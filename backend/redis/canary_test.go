package redis

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/canary"
)

// TestNoSecrets opens clients of servers that are of no use, with a password that is not
// to be seen in an error, in a log, or in anything that a client is made of.
func TestNoSecrets(t *testing.T) {
	for what, addr := range canary.Servers(t, "-ERR unknown command 'HELLO', with args beginning with: '3' 'auth' 'user' '"+canary.Secret+"'\r\n", "-WRONGPASS invalid username-password pair or user is disabled.\r\n", "*1\r\n$3\r\nfoo\r\n") {
		for _, format := range []string{"redis://user:SECRET@HOST?dial_timeout=1s&read_timeout=1s", "redis://:SECRET@HOST", "rediss://user:SECRET@HOST", "redis+sentinel://user:SECRET@HOST/master?sentinel_username=u&sentinel_password=SECRET", "redis+cluster://user:SECRET@HOST", "redis://user:SECRET@HOST/x", "redis://user:SECRET@HOST?pool_size=SECRET", "redis://user:SECRET@HOST/1?db=2"} {
			url := strings.NewReplacer("SECRET", canary.Secret, "HOST", addr).Replace(format)
			t.Run(what+" "+format, func(t *testing.T) {
				t.Parallel()
				log, said := canary.Log()
				ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
				defer cancel()
				c, err := dlock.Open(ctx, url, &dlock.Options{Logger: log})
				if err == nil {
					_, err = c.Mutex("name").TryLock(ctx)
					canary.Check(t, "client", c)
					_ = c.Close(ctx)
				}
				if err == nil {
					t.Error("it can be used")
				}
				canary.Check(t, "error", err)
				canary.Check(t, "log", said())
			})
		}
	}
}
