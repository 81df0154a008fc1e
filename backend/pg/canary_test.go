package pg

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
	for what, addr := range canary.Servers(t, "R\x00\x00\x00\x08\x00\x00\x00\x03", "E\x00\x00\x00\x10SFATAL\x00C28P01\x00\x00", "N") {
		for _, format := range []string{"postgres://user:SECRET@HOST/db", "postgres://user:SECRET@HOST/db?sslmode=disable", "postgres://user:SECRET@HOST/db?sslmode=verify-full", "postgres://user:SECRET@HOST/db?sslmode=SECRETx", "postgres://user:SECRET@HOST/db?connect_timeout=SECRET"} {
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
