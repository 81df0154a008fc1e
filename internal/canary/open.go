package canary

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
)

// CheckOpens opens clients of servers that are of no use, among them those that say one of
// the given texts, by URLs in which SECRET and HOST stand for themselves. The password is
// not to be seen in an error, in a log, or in anything that a client is made of.
func CheckOpens(t *testing.T, says []string, formats ...string) {
	t.Helper()
	for what, addr := range Servers(t, says...) {
		for _, format := range formats {
			url := strings.NewReplacer("SECRET", Secret, "HOST", addr).Replace(format)
			t.Run(what+" "+format, func(t *testing.T) {
				t.Parallel()
				log, said := Log()
				ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
				defer cancel()
				c, err := dlock.Open(ctx, url, &dlock.Options{Logger: log})
				if err == nil {
					_, err = c.Mutex("name").TryLock(ctx)
					Check(t, "client", c)
					_ = c.Close(ctx)
				}
				if err == nil {
					t.Error("it can be used")
				}
				Check(t, "error", err)
				Check(t, "log", said())
			})
		}
	}
}
